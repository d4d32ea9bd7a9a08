"""What a Kimi Linear forward pass must compute and move, and the time the machine needs for that at best.

Pure arithmetic on the fields of a config. Counted are the matrix products, the delta rule and attention,
in FLOPs (a multiplication with its addition is two), and the bytes that must pass between memory and
processor: weights once a pass, states and latents once each way, inputs and outputs of every product.
Not counted are norms, convolutions, activations, sorting and sampling, so the limit is a lower bound of
the time, never an estimate of it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.models.kimi_linear import KimiLinearConfig

KDA_BLOCK = 64
"""Tokens per block of the delta rule that is counted with."""

_FLOAT32 = 4


@dataclass(frozen=True, slots=True)
class Form:
    """How numbers are held.

    Attributes:
        weight_bits: bits per entry of a packed matrix, scales included: 4.5 for 4 bits in groups of 64.
        activation_bytes: bytes of an activation, a latent, and an entry of a matrix that is never packed.
    """

    weight_bits: float
    activation_bytes: int

    @staticmethod
    def packed(bits: int, group_size: int, activation_bytes: int) -> "Form":
        """Affine quantization: a scale and an offset of `activation_bytes` for each group."""
        return Form(bits + 2 * 8 * activation_bytes / group_size, activation_bytes)

    @staticmethod
    def dense(activation_bytes: int) -> "Form":
        """Weights as wide as activations."""
        return Form(8 * activation_bytes, activation_bytes)


@dataclass(frozen=True, slots=True)
class Work:
    """FLOPs to compute and bytes to move."""

    flops: float = 0.0
    nbytes: float = 0.0

    def __add__(self, other: "Work") -> "Work":
        return Work(self.flops + other.flops, self.nbytes + other.nbytes)


@dataclass(frozen=True, slots=True)
class Ceilings:
    """What the machine reached when it did nothing else.

    Attributes:
        flops_per_second: of a large matrix product in `dtype`.
        bytes_per_second: read and written by a large copy.
    """

    flops_per_second: float
    bytes_per_second: float
    dtype: str


Parts = dict[str, Work]
"""Work by the part of the model that does it."""


def limit_seconds(parts: Mapping[str, Work], ceilings: Ceilings) -> float:
    """The shortest time: each part is bound by the slower of computing and moving, one after another."""
    return sum(
        max(work.flops / ceilings.flops_per_second, work.nbytes / ceilings.bytes_per_second)
        for work in parts.values()
    )


def prefill_parts(
    config: "KimiLinearConfig", form: Form, slices: Sequence[tuple[int, int]], block: int = KDA_BLOCK
) -> Parts:
    """Reading the positions [start, end) of each slice, one pass a slice; the head runs once at the end."""
    parts: Parts = {}
    for start, end in slices:
        _collect(parts, _pass_parts(config, form, start, end, block))
    if slices:
        _collect(parts, [("head", _product(form, 1, config.hidden, config.vocab_size))])
    return parts


def decode_parts(config: "KimiLinearConfig", form: Form, context: int) -> Parts:
    """One token after `context` tokens: the recurrence token by token, attention on the latents."""
    parts: Parts = {}
    for layer in range(config.layers):
        if layer in config.kda_layers:
            step = ("delta rule", _delta_rule_step(config, form))
            _collect(parts, [("projections", _kda_projections(config, form, 1)), step])
        else:
            attention = ("attention", _absorbed_attention(config, form, context + 1))
            _collect(parts, [("projections", _mla_projections(config, form, 1)), attention])
        _collect(parts, _mlp_parts(config, form, layer, 1))
    _collect(parts, [("head", _product(form, 1, config.hidden, config.vocab_size))])
    return parts


def _collect(parts: Parts, more: "Sequence[tuple[str, Work]] | Iterator[tuple[str, Work]]") -> None:
    for name, work in more:
        parts[name] = parts.get(name, Work()) + work


def _pass_parts(
    c: "KimiLinearConfig", form: Form, start: int, end: int, block: int
) -> Iterator[tuple[str, Work]]:
    """One pass over [start, end), without the head."""
    tokens = end - start
    for layer in range(c.layers):
        if layer in c.kda_layers:
            yield "projections", _kda_projections(c, form, tokens)
            yield "delta rule", _delta_rule_blocks(c, form, tokens, block)
        else:
            yield "projections", _mla_projections(c, form, tokens)
            yield "expanding latents", _expansion(c, form, end)
            yield "attention", _expanded_attention(c, form, start, end)
        yield from _mlp_parts(c, form, layer, tokens)


def _product(form: Form, rows: float, inner: int, out: int, *, bits: float | None = None) -> Work:
    """rows x [inner -> out], the matrix read once."""
    weights = inner * out * (form.weight_bits if bits is None else bits) / 8
    return Work(2 * rows * inner * out, weights + rows * (inner + out) * form.activation_bytes)


def _kda_projections(c: "KimiLinearConfig", form: Form, tokens: int) -> Work:
    """q, k, v, the two low-rank gates, beta and the output."""
    width, rank = c.kda_heads * c.kda_width, c.kda_width
    first = _product(form, tokens, c.hidden, 3 * width + 2 * rank + c.kda_heads)
    up = _product(form, tokens, rank, width)
    return first + up + up + _product(form, tokens, width, c.hidden)


def _mla_projections(c: "KimiLinearConfig", form: Form, tokens: int) -> Work:
    """Queries, latent with the shared key, and the output."""
    queries = c.heads * (c.nope + c.shared)
    first = _product(form, tokens, c.hidden, queries + c.rank + c.shared)
    return first + _product(form, tokens, c.heads * c.value, c.hidden)


def _delta_rule_blocks(c: "KimiLinearConfig", form: Form, tokens: int, block: int) -> Work:
    """The block form: what is inside a block once, three products with the state a block."""
    whole, rest = divmod(tokens, block)
    macs = whole * _block_macs(block, c.kda_width) + (_block_macs(rest, c.kda_width) if rest else 0)
    width = c.kda_width
    moved = tokens * (4 * width * form.activation_bytes + (width + 1) * _FLOAT32)  # q, k, v, o; g, beta
    state = 2 * width * width * _FLOAT32
    return Work(2 * c.kda_heads * macs, c.kda_heads * (moved + state))


def _block_macs(b: int, width: int) -> int:
    """Multiply-adds of one head in one block of b tokens; triangles are counted as triangles."""
    below, with_diagonal = b * (b - 1) // 2, b * (b + 1) // 2
    weights = (below + with_diagonal) * width  # keys and queries against the block's keys
    inverse = b * (b - 1) * (b - 2) // 6
    applied = 2 * with_diagonal * width  # the inverse to keys and to values
    state = 3 * b * width * width  # look up, read out, write
    return weights + inverse + applied + with_diagonal * width + state


def _delta_rule_step(c: "KimiLinearConfig", form: Form) -> Work:
    """Fade (one multiplication an entry), look up, write, read; the state in and out."""
    width = c.kda_width
    moved = 4 * width * form.activation_bytes + (width + 1) * _FLOAT32 + 2 * width * width * _FLOAT32
    return Work(c.kda_heads * 7 * width * width, c.kda_heads * moved)


def _expansion(c: "KimiLinearConfig", form: Form, context: int) -> Work:
    """Keys and values of all heads from the latents of the whole context; the matrix is never packed."""
    out = c.heads * (c.nope + c.value)
    return _product(form, context, c.rank, out, bits=8 * form.activation_bytes)


def _expanded_attention(c: "KimiLinearConfig", form: Form, start: int, end: int) -> Work:
    """Each query with itself and all before it; queries, keys, values and outputs pass once."""
    tokens, key = end - start, c.nope + c.shared
    pairs = tokens * start + tokens * (tokens + 1) // 2
    moved = (tokens + end) * (key + c.value) * c.heads
    latents = tokens * (c.rank + c.shared)  # the new ones, written
    return Work(2 * pairs * c.heads * (key + c.value), (moved + latents) * form.activation_bytes)


def _absorbed_attention(c: "KimiLinearConfig", form: Form, context: int) -> Work:
    """One query of every head on `context` latents, which all heads share; keys and values stay folded."""
    dense = 8 * form.activation_bytes
    folded = _product(form, 1, c.nope, c.rank, bits=dense)
    unfolded = _product(form, 1, c.rank, c.value, bits=dense)
    heads = Work(*(c.heads * (a + b) for a, b in _pairs(folded, unfolded)))
    macs = context * c.heads * (2 * c.rank + c.shared)
    return heads + Work(2 * macs, (context + 1) * (c.rank + c.shared) * form.activation_bytes)


def _pairs(first: Work, second: Work) -> tuple[tuple[float, float], tuple[float, float]]:
    return (first.flops, second.flops), (first.nbytes, second.nbytes)


def _mlp_parts(c: "KimiLinearConfig", form: Form, layer: int, tokens: int) -> Iterator[tuple[str, Work]]:
    if not c.is_moe(layer):
        yield "dense MLP", _gated_mlp(c, form, tokens, c.intermediate)
        return
    yield "router", _product(form, tokens, c.hidden, c.experts, bits=8 * _FLOAT32)
    yield "experts", _experts(c, form, tokens)
    if c.shared_experts:
        yield "shared expert", _gated_mlp(c, form, tokens, c.moe_intermediate * c.shared_experts)


def _gated_mlp(c: "KimiLinearConfig", form: Form, tokens: int, inner: int) -> Work:
    return _product(form, tokens, c.hidden, 2 * inner) + _product(form, tokens, inner, c.hidden)


def _experts(c: "KimiLinearConfig", form: Form, tokens: int) -> Work:
    """The chosen experts of every token; weights of the experts that some token is expected to choose."""
    rows = tokens * c.top_k
    touched = expected_experts(c.experts, c.top_k, tokens)
    weights = touched * 3 * c.hidden * c.moe_intermediate * form.weight_bits / 8
    return Work(
        2 * rows * 3 * c.hidden * c.moe_intermediate,
        weights + rows * (2 * c.hidden + 3 * c.moe_intermediate) * form.activation_bytes,
    )


def expected_experts(experts: int, top_k: int, tokens: int) -> float:
    """How many experts are chosen at least once when each token chooses `top_k` evenly at random."""
    return experts * (1 - (1 - top_k / experts) ** tokens)
