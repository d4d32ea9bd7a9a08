"""Times the delta rule alone on a GPU: ours, and flash-linear-attention's Triton kernel as a reference.

    python scripts/time_kda_core.py [--tokens 8192,32768] [--only perigee | fla] [--fla-python PYTHON]

Each in a process of its own, on random inputs of one KDA layer of Kimi-Linear-48B-A3B (32 heads of 128),
bf16: the median of ten after a warm-up. Prints JSON, milliseconds by number of tokens. Ours takes
normalised queries, keys and log-decays in float32; theirs queries and keys in bf16, not normalised again.
"""

import argparse
import importlib
import importlib.util
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

HEADS, WIDTH = 32, 128
REPEATS, WARM_UP = 10, 3
PARTS = ("perigee", "fla")
BARE = Path(__file__).resolve().parents[1] / "engine" / "planning" / "bare.py"


def median_ms(act: Callable[[], None]) -> float:
    """Milliseconds of `act`, which waits for the device itself."""
    seconds: list[float] = []
    for attempt in range(WARM_UP + REPEATS):
        begun = time.perf_counter()
        act()
        if attempt >= WARM_UP:
            seconds.append(time.perf_counter() - begun)
    return 1e3 * statistics.median(seconds)


def time_perigee(tokens: int) -> float:
    """Milliseconds of our kernel."""
    spec = importlib.util.spec_from_file_location("bare", BARE)
    assert spec is not None
    assert spec.loader is not None
    bare = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bare)
    bare.prepare()
    try:
        mx: Any = importlib.import_module("mlx.core")
    except ImportError as error:
        raise SystemExit(f"Our kernel needs mlx, which is not installed ({error}).") from error
    if mx.default_device().type != mx.gpu:
        raise SystemExit("Our kernel runs on a GPU, and MLX sees none here.")
    try:
        scan: Any = importlib.import_module("engine.kernels.kda_scan").kda_scan
    except ImportError as error:
        raise SystemExit(f"This version of Perigee has no engine/kernels/kda_scan.py ({error}).") from error
    keys = mx.random.split(mx.random.key(1), 5)
    shape = (1, tokens, HEADS, WIDTH)
    q, k = (mx.random.normal(shape, key=key) for key in keys[:2])
    q = q / mx.linalg.norm(q, axis=-1, keepdims=True) * WIDTH**-0.5
    k = k / mx.linalg.norm(k, axis=-1, keepdims=True)
    v = mx.random.normal(shape, key=keys[2]).astype(mx.bfloat16)
    g = -mx.exp(mx.random.uniform(math.log(0.001), math.log(1.6), shape, key=keys[3]))
    beta = mx.random.uniform(0, 1, shape[:3], key=keys[4])
    state = mx.zeros((1, HEADS, WIDTH, WIDTH), mx.float32)
    mx.eval(q, k, v, g, beta, state)
    return median_ms(lambda: mx.eval(scan(q, k, v, g, beta, state)))


def time_fla(tokens: int) -> float:
    """Milliseconds of `fla.ops.kda.chunk_kda`, forward only."""
    try:
        torch: Any = importlib.import_module("torch")
        importlib.import_module("triton")
        chunk_kda: Any = importlib.import_module("fla.ops.kda").chunk_kda
    except ImportError as error:
        raise SystemExit(
            "The reference needs torch, triton and flash-linear-attention, and one is not installed "
            f"({error})."
        ) from error
    if not torch.cuda.is_available():
        raise SystemExit("The reference runs on a GPU, and torch sees none here.")
    torch.manual_seed(1)
    shape = (1, tokens, HEADS, WIDTH)

    def draw() -> Any:
        return torch.randn(shape, device="cuda")

    q, k = (torch.nn.functional.normalize(draw(), dim=-1).to(torch.bfloat16) for _ in range(2))
    v = draw().to(torch.bfloat16)
    g = -torch.exp(torch.empty(shape, device="cuda").uniform_(math.log(0.001), math.log(1.6)))
    beta = torch.rand(shape[:3], device="cuda")
    state = torch.zeros((1, HEADS, WIDTH, WIDTH), device="cuda")

    def run() -> None:
        chunk_kda(q, k, v, g, beta, scale=WIDTH**-0.5, initial_state=state, output_final_state=True)
        torch.cuda.synchronize()

    with torch.inference_mode():
        return median_ms(run)


def in_a_process(part: str, tokens: Sequence[int], python: str) -> tuple[dict[str, float], str]:
    """Milliseconds by tokens, or what is missing."""
    listed = ",".join(map(str, tokens))
    done = subprocess.run(
        [python, __file__, "--worker", part, "--tokens", listed], capture_output=True, text=True, check=False
    )
    if done.returncode:
        return {}, done.stderr.strip().splitlines()[
            -1
        ] if done.stderr.strip() else f"status {done.returncode}"
    return json.loads(done.stdout.splitlines()[-1]), ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, time, print; 1 if a part is missing."""
    parser = argparse.ArgumentParser(description="Time the delta rule alone on a GPU.")
    parser.add_argument("--tokens", default="8192,32768", help="numbers of tokens, separated by commas")
    parser.add_argument("--only", choices=PARTS, help="one of the two")
    parser.add_argument("--fla-python", default=sys.executable, help="an interpreter that has torch and fla")
    parser.add_argument("--worker", choices=PARTS, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    tokens = [int(part) for part in options.tokens.split(",")]
    if options.worker:
        timed = time_perigee if options.worker == "perigee" else time_fla
        print(json.dumps({str(count): timed(count) for count in tokens}))
        return 0
    found: dict[str, object] = {"heads": HEADS, "width": WIDTH, "milliseconds": {}}
    times: dict[str, dict[str, float]] = {}
    missing: list[str] = []
    for part in [options.only] if options.only else PARTS:
        python = options.fla_python if part == "fla" else sys.executable
        times[part], problem = in_a_process(part, tokens, python)
        if problem:
            missing.append(f"{part}: {problem}")
    found["milliseconds"] = times
    print(json.dumps(found))
    for problem in missing:
        print(problem, file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    raise SystemExit(main())
