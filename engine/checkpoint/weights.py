"""Tensors of a checkpoint, taken by name and shape; every fault is named in one error.

A family takes what it needs with `WeightReader`; whatever is missing, misshapen or left over is
collected, and `finish()` raises once with all of it. Until then faults yield zeros, so that loading
goes on and finds the rest.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from engine.errors import CheckpointError, UnsupportedModelError
from engine.layers.expert_blocks import DenseExperts
from engine.layers.expert_choices import chosen_forms
from engine.layers.expert_groups import GroupedExperts
from engine.layers.expert_matrices import DenseMatrices, Matrices, PackedMatrices, side_by_side
from engine.layers.linear import BlockedLinear, Linear, Projection, QuantizedLinear, choose_unpacking
from engine.layers.moe import Experts

_LARGEST_EXTENT = 2**31 - 1
_LARGEST_ARRAY = 2**40


@dataclass(frozen=True, slots=True)
class Packing:
    """Parameters of an affine quantization."""

    group_size: int
    bits: int


@dataclass(frozen=True, slots=True)
class Numerics:
    """How weights are held: the dtype of activations, and fixed row blocks on a CPU.

    On a CPU quantized and half-precision products are slow, so weights are held dense in float32.
    """

    dtype: mx.Dtype
    blocked: bool

    @staticmethod
    def for_device(config_dtype: str | None) -> "Numerics":
        """The choice for MLX's default device."""
        if mx.default_device().type == mx.cpu:
            return Numerics(mx.float32, blocked=True)
        names = {"float32": mx.float32, "float16": mx.float16, "bfloat16": mx.bfloat16}
        return Numerics(names.get(config_dtype or "bfloat16", mx.bfloat16), blocked=False)


class Quantization:
    """The `quantization` block of a config: a default and per-module overrides."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        block = config.get("quantization") or config.get("quantization_config") or {}
        if not isinstance(block, Mapping):
            raise UnsupportedModelError("The quantization block of config.json is not a table.")
        self._block: Mapping[str, Any] = block
        method = self._block.get("quant_method")
        if method not in (None, "affine"):
            raise UnsupportedModelError(
                f"This model is quantized with “{method}”, which this version cannot read. Choose a "
                "conversion with affine quantization, or one that is not quantized."
            )
        self._check(self._block, "quantization")

    def _check(self, block: Mapping[str, Any], where: str) -> None:
        mode = block.get("mode", "affine")
        if mode != "affine":
            raise UnsupportedModelError(
                f"config.json asks for {where} mode “{mode}”, which this version cannot compute. "
                "Choose a conversion with affine quantization."
            )
        for field, allowed in (("bits", (2, 3, 4, 5, 6, 8)), ("group_size", (32, 64, 128))):
            value = block.get(field, allowed[0])
            if type(value) is not int or value not in allowed:
                raise UnsupportedModelError(
                    f"config.json asks for {where} with {field} {value!r}; "
                    f"{', '.join(map(str, allowed))} work."
                )

    def packing(self, module: str) -> Packing | None:
        """The parameters of a module whose file holds scales; None if the config forbids it."""
        override = self._block.get(module)
        if override is False:
            return None
        block: Mapping[str, Any] = self._block
        if isinstance(override, Mapping):
            self._check(override, f"quantization of {module}")
            block = {**self._block, **override}
        if "bits" not in block or "group_size" not in block:
            return None
        return Packing(int(block["group_size"]), int(block["bits"]))

    def describe(self) -> str:
        """ "8-bit" or "not quantized"."""
        return f"{self._block['bits']}-bit" if "bits" in self._block else "not quantized"


class WeightReader:
    """Takes tensors by name; see the module's docstring.

    Attributes:
        numerics: how weights are to be held.
    """

    def __init__(
        self,
        tensors: Mapping[str, mx.array],
        quantization: Quantization,
        numerics: Numerics,
    ) -> None:
        self._tensors = dict(tensors)
        self._quantization = quantization
        self._left = set(self._tensors)
        self._faults: list[str] = []
        self.numerics = numerics

    def has(self, name: str) -> bool:
        """Whether a tensor of that name is there."""
        return name in self._tensors

    def names(self) -> Iterable[str]:
        """All tensor names."""
        return self._tensors.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor that is there."""
        return tuple(self._tensors[name].shape)

    def raw(self, name: str) -> mx.array:
        """A tensor that is there, as it stands; it still has to be taken or consumed."""
        return self._tensors[name]

    def rename(self, old: str, new: str) -> None:
        """Give a tensor another name."""
        self.replace(new, self._tensors[old], consumes=(old,))

    def replace(self, name: str, array: mx.array, consumes: Iterable[str] = ()) -> None:
        """Put a derived tensor in place of those it was made from."""
        for old in list(consumes):
            self._tensors.pop(old, None)
            self._left.discard(old)
        self._tensors[name] = array
        self._left.add(name)

    def ignore(self, *names: str) -> None:
        """Mark tensors as known and not needed."""
        self._left.difference_update(names)

    @property
    def sound(self) -> bool:
        """Whether everything asked for so far was there, in its shape."""
        return not self._faults

    def fault(self, text: str) -> None:
        """Record something wrong; `finish` reports it."""
        self._faults.append(text)

    def take(self, name: str, *shapes: tuple[int, ...], dtype: mx.Dtype | None = None) -> mx.array:
        """The tensor `name`, in one of `shapes`, cast to `dtype` (default: the activation dtype).

        Returned in the first shape when the element counts agree.
        """
        array = self._tensors.get(name)
        dtype = dtype or self.numerics.dtype
        if array is None:
            self.fault(f"missing: {name}, {_spell(shapes[0])}")
            return self._stand_in(shapes[0], dtype)
        self._left.discard(name)
        if tuple(array.shape) not in shapes:
            self.fault(f"misshapen: {name} is {_spell(array.shape)}, expected {_spell(shapes[0])}")
            return self._stand_in(shapes[0], dtype)
        return array.reshape(shapes[0]).astype(dtype)

    def _stand_in(self, shape: tuple[int, ...], dtype: mx.Dtype) -> mx.array:
        """Zeros in place of a faulty tensor; where not even they can be made, the faults end it here."""
        if max(shape) > _LARGEST_EXTENT or math.prod(shape) > _LARGEST_ARRAY:
            self.finish()
        return mx.zeros(shape, dtype)

    def take_raw(self, name: str, shape: tuple[int, ...]) -> mx.array:
        """The tensor `name` as it stands in the file."""
        array = self._tensors.get(name)
        if array is None or tuple(array.shape) != shape:
            return self.take(name, shape)
        self._left.discard(name)
        return array

    def matrix(self, module: str, *shape: int, dtype: mx.Dtype | None = None) -> mx.array:
        """`module`.weight [.., out, in] as a dense array, dequantized if it is quantized."""
        packed = self._packed(module, shape)
        if packed is None and self.has(f"{module}.scales"):
            return self._stand_in(shape, dtype or self.numerics.dtype)  # the fault is recorded
        if packed is None:
            return self.take(f"{module}.weight", shape, dtype=dtype)
        weight, scales, biases, packing = packed
        dense = mx.dequantize(weight, scales, biases, group_size=packing.group_size, bits=packing.bits)
        return dense.astype(dtype or self.numerics.dtype)

    def projection(self, module: str, out: int, inner: int) -> Projection:
        """`module` [out, in] as a projection, in the form this device wants."""
        if self.numerics.blocked:
            return BlockedLinear(self.matrix(module, out, inner))
        packed = self._packed(module, (out, inner))
        if packed is None:
            return Linear(self.take(f"{module}.weight", (out, inner)))
        weight, scales, biases, packing = packed
        how = (packing.group_size, packing.bits)
        unpacking = choose_unpacking(*how, self.numerics.dtype) if self.sound else None
        return QuantizedLinear(weight, scales, biases, *how, unpacking)

    def dense_projection(self, module: str, out: int, inner: int, dtype: mx.Dtype) -> Linear | BlockedLinear:
        """`module` [out, in] as a dense projection in `dtype`, whatever the file holds."""
        kind = BlockedLinear if self.numerics.blocked else Linear
        return kind(self.matrix(module, out, inner, dtype=dtype))

    def experts(self, module: str, count: int, hidden: int, inner: int) -> Experts:
        """Stacked experts `module`.{gate,up,down}_proj, in the form this device wants."""
        names = [f"{module}.{part}_proj" for part in ("gate", "up", "down")]
        shapes = [(count, inner, hidden), (count, inner, hidden), (count, hidden, inner)]
        if not self.numerics.blocked:
            gate, up, down = (self._expert_matrices(n, s) for n, s in zip(names, shapes, strict=True))
            gate_up = side_by_side(gate, up)
            if not self.sound:
                return GroupedExperts(gate_up, down)
            forms, choices = chosen_forms(hidden, inner, gate_up, down, self.numerics.dtype)
            return GroupedExperts(gate_up, down, forms, choices)
        gate, up, down = (self.matrix(n, *s) for n, s in zip(names, shapes, strict=True))
        gate_up = mx.concatenate([gate, up], axis=1).swapaxes(1, 2)
        return DenseExperts(mx.contiguous(gate_up), mx.contiguous(down.swapaxes(1, 2)))

    def _expert_matrices(self, module: str, shape: tuple[int, int, int]) -> Matrices:
        packed = self._packed(module, shape)
        if packed is None:
            return DenseMatrices(self.take(f"{module}.weight", shape))
        weight, scales, biases, packing = packed
        return PackedMatrices(weight, scales, biases, packing.group_size, packing.bits)

    def _packed(
        self, module: str, shape: tuple[int, ...]
    ) -> tuple[mx.array, mx.array, mx.array, Packing] | None:
        """Weight, scales, biases and packing of a quantized module; None if it is not quantized."""
        if not self.has(f"{module}.scales"):
            return None
        packing = self._quantization.packing(module)
        if packing is None:
            self.fault(f"{module} has scales, but config.json does not say how it is quantized")
            self.ignore(f"{module}.weight", f"{module}.scales", f"{module}.biases")
            return None
        lead, inner = shape[:-1], shape[-1]
        if inner % packing.group_size:
            self.fault(f"misshapen: {module} has {inner} columns, not whole groups of {packing.group_size}")
            self.ignore(f"{module}.weight", f"{module}.scales", f"{module}.biases")
            return None
        groups = (*lead, inner // packing.group_size)
        weight = self.take(f"{module}.weight", (*lead, inner * packing.bits // 32), dtype=mx.uint32)
        scales = self.take_raw(f"{module}.scales", groups)
        return weight, scales, self.take_raw(f"{module}.biases", groups), packing

    def finish(self) -> None:
        """Raise `CheckpointError` naming every missing, misshapen and unexpected tensor."""
        faults = self._faults + [f"unexpected: {name}" for name in sorted(self._left)]
        if not faults:
            return
        shown = "\n".join(f"  {fault}" for fault in faults[:200])
        more = f"\n  and {len(faults) - 200} more" if len(faults) > 200 else ""
        raise CheckpointError(
            f"The weights do not fit config.json; {len(faults)} faults. The model may be damaged, "
            f"incomplete or of another kind: download it again.\n{shown}{more}"
        )


def _spell(shape: Iterable[int]) -> str:
    return f"[{', '.join(map(str, shape))}]"
