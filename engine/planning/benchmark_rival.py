"""The other side of a benchmark: mlx-lm, with its own loop, on the same checkpoint and token ids.

mlx-lm is imported only here, by name, in a process of its own. Its package imports transformers; where
that is missing, its model files are imported without the package's `__init__`, and the loop is ours,
written after its `generate_step`. The report says which it was.
"""

import importlib
import importlib.metadata
import importlib.util
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import mlx.core as mx
import mlx.nn as nn

from engine.planning.benchmark_clock import Clock, held_bytes

PACKAGE = "mlx_lm"
TRIM_EVERY = 256


def rival_version() -> str:
    """The installed version, or ""."""
    try:
        return importlib.metadata.version("mlx-lm")
    except importlib.metadata.PackageNotFoundError:
        return ""


class MlxLm:
    """See `Contender`.

    Raises:
        ImportError: it is not installed.
    """

    def __init__(self, folder: Path, chunk: int) -> None:
        self._chunk = chunk
        try:
            self._step: Any = importlib.import_module(f"{PACKAGE}.generate").generate_step
            self._model: Any = importlib.import_module(f"{PACKAGE}.utils").load_model(folder)[0]
            self.loop = "mlx-lm's own generate_step"
        except ImportError:
            _without_init()
            self._step = _generate_step
            self._model = load_model(folder)
            self.loop = "written after mlx-lm's generate_step, whose own imports are not installed here"
        self._cache: Any = importlib.import_module(f"{PACKAGE}.models.cache")

    def run(self, ids: list[int], generate: int, clock: Clock) -> list[int]:
        """See `Contender`. Its loop waits for a token right after it started the next with async_eval."""
        cache: Any = self._cache.make_prompt_cache(self._model)
        tokens: Iterator[Any] = self._step(
            mx.array(ids),
            self._model,
            max_tokens=generate,
            prefill_step_size=self._chunk or len(ids),
            prompt_cache=cache,
        )
        written: list[int] = []
        library: Any = mx
        start = library.async_eval

        def start_and_mark(*arrays: Any) -> None:
            start(*arrays)
            clock.waiting()

        library.async_eval = start_and_mark
        try:
            for token, _ in tokens:
                clock.handed()
                if not written:
                    clock.state_bytes = held_bytes(cache)
                written.append(int(token))
        finally:
            library.async_eval = start
        mx.eval([layer.state for layer in cache])  # the step it had begun, so that nothing runs on
        return written


def _without_init() -> None:
    """Put the package in place without running its `__init__`."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.submodule_search_locations is None:
        raise ImportError("mlx-lm is not installed")
    for name in [name for name in sys.modules if name.split(".")[0] == PACKAGE]:
        del sys.modules[name]  # what a failed import left behind
    module = ModuleType(PACKAGE)
    module.__path__ = list(spec.submodule_search_locations)
    sys.modules[PACKAGE] = module


def load_model(folder: Path) -> Any:
    """The model as mlx-lm's `load_model` makes it, for dense and affine checkpoints."""
    config = cast("dict[str, Any]", json.loads((folder / "config.json").read_text(encoding="utf-8")))
    family: Any = importlib.import_module(f"{PACKAGE}.models.{config['model_type']}")
    weights: dict[str, mx.array] = {}
    for file in sorted(folder.glob("model*.safetensors")):
        weights.update(cast("dict[str, mx.array]", mx.load(str(file))))
    model: Any = family.Model(family.ModelArgs.from_dict(config))
    weights = model.sanitize(weights)
    packing = cast("Mapping[str, Any] | None", config.get("quantization"))
    if packing is not None:

        def choose(path: str, module: Any) -> bool | Mapping[str, Any]:
            if path in packing:
                return cast("bool | Mapping[str, Any]", packing[path])
            if not hasattr(module, "to_quantized") or f"{path}.scales" not in weights:
                return False
            inner = module.weight.shape[-1]
            return {
                "group_size": inner // weights[f"{path}.scales"].shape[-1],
                "bits": weights[f"{path}.weight"].shape[-1] * 32 // inner,
                "mode": "affine",
            }

        quantize: Any = nn.quantize
        quantize(model, group_size=packing["group_size"], bits=packing["bits"], class_predicate=choose)
    model.eval()
    model.load_weights(list(weights.items()), strict=True)
    mx.eval(model.parameters())
    return model


def _generate_step(
    prompt: mx.array, model: Any, *, max_tokens: int, prefill_step_size: int, prompt_cache: Any
) -> Iterator[tuple[int, mx.array]]:
    """mlx-lm 0.32's `generate_step`, greedy and without its options, line by line."""
    stream = mx.new_thread_local_stream(mx.default_device())

    def step(tokens: mx.array) -> tuple[mx.array, mx.array]:
        with mx.stream(stream):
            logits = model(tokens[None], cache=prompt_cache)[:, -1, :]
            logprobs = logits - mx.logsumexp(logits, keepdims=True)
            return mx.argmax(logprobs, axis=-1), logprobs.squeeze(0)

    with mx.stream(stream):
        while prompt.size > 1:
            count = min(prefill_step_size, prompt.size - 1)
            model(prompt[:count][None], cache=prompt_cache)
            mx.eval([layer.state for layer in prompt_cache])
            prompt = prompt[count:]
            mx.clear_cache()
        token, logprobs = step(prompt)
        mx.async_eval(token, logprobs)
        for written in range(max_tokens):
            following, following_logprobs = step(token)
            mx.async_eval(following, following_logprobs)
            if written == 0:
                mx.eval(token)
            yield cast("int", token.item()), logprobs
            if written % TRIM_EVERY == 0:
                mx.clear_cache()
            token, logprobs = following, following_logprobs
