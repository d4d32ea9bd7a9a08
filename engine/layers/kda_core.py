"""The part of a KDA block between its projections: convolution, gates, delta rule, output norm.

`plain_core` is the truth, in plain ops. `kernel_core` is the same function as three device kernels,
used where `engine.kernels.selection` found them equal and faster on the device at hand.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import mlx.core as mx

from engine.kernels.delta_rule import block_terms, delta_rule_step, follow
from engine.kernels.device import language
from engine.kernels.kda_gates import kda_finish, kda_prepare
from engine.kernels.kda_scan import kda_scan, scan_fits
from engine.kernels.lanes import Part, run_in_lanes
from engine.kernels.pointwise import sigmoid, softplus
from engine.kernels.selection import Choice, choose
from engine.layers.activations import l2_norm, rms_norm
from engine.layers.conv import ShortConvolution


@dataclass(frozen=True)
class KdaParameters:
    """Weights of one block's core. H heads of width D, P = H * D.

    Attributes:
        convolution: over q | k | v together (depthwise, so joining changes nothing).
        decay_scale: exp(A_log) [H, 1] float32.
        decay_bias: dt_bias [H, D] float32.
        qk_scale: [2H, 1] float32, D^-1/2 for the queries (the read-out scale) and 1 for the keys.
        output_norm: [D] float32, shared by all heads.
        norm_eps: [1] float32.
    """

    convolution: ShortConvolution
    decay_scale: mx.array
    decay_bias: mx.array
    qk_scale: mx.array
    output_norm: mx.array
    norm_eps: mx.array
    eps: float

    @staticmethod
    def of(
        taps: mx.array, a_log: mx.array, decay_bias: mx.array, output_norm: mx.array, eps: float
    ) -> "KdaParameters":
        """From taps [K, 3P], A_log [H, 1], dt_bias [H, D] and the output norm [D]."""
        heads, width = decay_bias.shape
        return KdaParameters(
            convolution=ShortConvolution(taps),
            decay_scale=mx.exp(a_log),
            decay_bias=decay_bias,
            qk_scale=mx.repeat(mx.array([width**-0.5, 1.0]), heads)[:, None],
            output_norm=output_norm,
            norm_eps=mx.array([eps]),
            eps=eps,
        )


@dataclass(frozen=True)
class CoreInputs:
    """What the projections of T tokens gave, and the state they continue.

    Attributes:
        projected: [B, T, W]: q | k | v (3P columns), anything, write strength before the sigmoid (H).
        forget, gate: [B, T, P], the forget gate and the output gate before their functions.
        window: [B, K-1, 3P]. memory: [B, H, D, D] float32.
    """

    projected: mx.array
    forget: mx.array
    gate: mx.array
    window: mx.array
    memory: mx.array


class Core(Protocol):
    """One form of the core."""

    def __call__(self, p: KdaParameters, x: CoreInputs, valid: int) -> tuple[mx.array, mx.array, mx.array]:
        """Continue the state by the first `valid` tokens; y [B, T, P], the next window and memory."""
        ...


SEGMENT = 1024
"""Tokens of `plain_core` whose arrays are alive at once, on each lane. A multiple of 64, so that the cut
changes no bit, and more than a convolution looks back."""


def plain_core(p: KdaParameters, x: CoreInputs, valid: int) -> tuple[mx.array, mx.array, mx.array]:
    """The core in plain ops; see `Core`."""
    length = x.projected.shape[1]
    if length == 1:
        q, k, v, window = _convolved(p, x, valid)
        g, beta = _gates(p, x)
        o, memory = delta_rule_step(q[:, 0], k[:, 0], v[:, 0], g[:, 0], beta[:, 0], x.memory)
        return _finished(p, x, o[:, None]), window, memory
    windows, memories = [x.window], [x.memory]
    ys = run_in_lanes(_segment(p, x, valid, first, windows, memories) for first in range(0, length, SEGMENT))
    return (ys[0] if len(ys) == 1 else mx.concatenate(ys, axis=1)), windows[-1], memories[-1]


def _segment(
    p: KdaParameters,
    x: CoreInputs,
    valid: int,
    first: int,
    windows: list[mx.array],
    memories: list[mx.array],
) -> Part[mx.array]:
    """y of the tokens from `first` on. All of it but the pass through the memory needs no earlier segment.

    `memories` and `windows` hold what each segment left behind, in order; this one adds its own.
    """
    rows = slice(first, first + SEGMENT)
    channels, back = x.window.shape[2], x.window.shape[1]
    window = x.projected[:, first - back : first, :channels] if first else x.window
    own = CoreInputs(x.projected[:, rows], x.forget[:, rows], x.gate[:, rows], window, x.memory)
    tokens = own.projected.shape[1]
    q, k, v, window = _convolved(p, own, min(valid - first, tokens))
    g, beta = _gates(p, own)
    yield q, k, v, g
    if valid - first < tokens:
        token = mx.arange(tokens)[:, None] < valid - first
        g, beta = mx.where(token[..., None], g, 0.0), mx.where(token, beta, 0.0)
    terms = yield from block_terms(q, k, v, g, beta)
    while len(memories) <= first // SEGMENT:
        yield ()
    o, memory = yield from follow(terms, memories[-1])
    memories.append(memory)
    windows.append(window)
    y = _finished(p, own, o[:, :tokens])
    yield y, window
    return y


def _convolved(p: KdaParameters, x: CoreInputs, valid: int) -> tuple[mx.array, mx.array, mx.array, mx.array]:
    """q, k (normalised, with the read-out scale in q) and v, [B, T, H, D], and the next window."""
    heads, width = p.decay_bias.shape
    qkv, window = p.convolution(x.projected[..., : 3 * heads * width], x.window, valid)
    qk, v = mx.split(qkv.reshape(*qkv.shape[:2], 3 * heads, width), (2 * heads,), axis=2)
    q, k = mx.split(l2_norm(qk, p.qk_scale), 2, axis=2)
    return q, k, v, window


def _gates(p: KdaParameters, x: CoreInputs) -> tuple[mx.array, mx.array]:
    """The log-decay [B, T, H, D] and the write strength [B, T, H], float32."""
    heads, width = p.decay_bias.shape
    g = _log_decay(p, x.forget.reshape(*x.forget.shape[:2], heads, width))
    return g, sigmoid(x.projected[..., -heads:].astype(mx.float32), few=x.projected.shape[1] == 1)


def _finished(p: KdaParameters, x: CoreInputs, o: mx.array) -> mx.array:
    """The outputs [B, T, H, D], normalised and gated, as [B, T, P] in the dtype of the inputs."""
    z = x.gate.reshape(o.shape).astype(mx.float32)
    y = rms_norm(o, p.output_norm, p.eps) * sigmoid(z, few=z.shape[1] == 1)
    return y.astype(x.projected.dtype).reshape(x.gate.shape)


def _log_decay(p: KdaParameters, a: mx.array) -> mx.array:
    """g = -exp(A_log) * softplus(a + dt_bias), [B, T, H, D] float32, unbounded below."""
    return -p.decay_scale * softplus(a.astype(mx.float32) + p.decay_bias, few=a.shape[1] == 1)


def kernel_core(p: KdaParameters, x: CoreInputs, valid: int) -> tuple[mx.array, mx.array, mx.array]:
    """The core as device kernels; see `Core`. Every row must be a token, as on every GPU."""
    assert valid == x.projected.shape[1]  # rows are padded on a CPU only
    q, k, v, g, beta, window = kda_prepare(
        x.projected, x.forget, x.window, p.convolution.taps, p.decay_scale, p.decay_bias
    )
    o, memory = kda_scan(q, k, v, g, beta, x.memory)
    return kda_finish(o, x.gate, p.output_norm, p.norm_eps), window, memory


_TOLERANCE = 1e-2
"""Of the largest value. The twin's float32 products run in TF32 on CUDA (4e-4 of error in the delta
rule), and a bfloat16 value or output is rounded by up to 4e-3."""

_PROBE_TOKENS = 515


@dataclass(frozen=True)
class Cores:
    """The form for one token, the form for several, and how they were chosen."""

    one: Core = plain_core
    many: Core = plain_core
    choices: tuple[Choice, ...] = ()

    def __call__(self, p: KdaParameters, x: CoreInputs, valid: int) -> tuple[mx.array, mx.array, mx.array]:
        """See `Core`."""
        return (self.one if x.projected.shape[1] == 1 else self.many)(p, x, valid)


@lru_cache(maxsize=8)
def chosen_cores(heads: int, width: int, kernel: int, columns: int, dtype: mx.Dtype) -> Cores:
    """The forms to use on this device for blocks of these shapes; compared once a process.

    `kernel` is K, `columns` is W; see `CoreInputs`.
    """
    if language() is None or not scan_fits(width, width):
        return Cores()
    one = _choose("KDA, one token", heads, width, kernel, columns, dtype, 1)
    many = _choose("KDA, many tokens", heads, width, kernel, columns, dtype, _PROBE_TOKENS)
    return Cores(
        one=kernel_core if one.used else plain_core,
        many=kernel_core if many.used else plain_core,
        choices=(many, one),
    )


def _choose(
    name: str, heads: int, width: int, kernel: int, columns: int, dtype: mx.Dtype, tokens: int
) -> Choice:
    p, x = random_core(heads, width, kernel, columns, dtype, tokens)
    exact = CoreInputs(*(a.astype(mx.float32) for a in (x.projected, x.forget, x.gate, x.window, x.memory)))
    exact_p = KdaParameters.of(
        p.convolution.taps.astype(mx.float32), mx.log(p.decay_scale), p.decay_bias, p.output_norm, p.eps
    )
    return choose(
        name,
        form=lambda: kernel_core(p, x, tokens),
        plain=lambda: plain_core(p, x, tokens),
        truth=lambda: plain_core(exact_p, exact, tokens),
        tolerance=_TOLERANCE,
    )


def random_core(
    heads: int, width: int, kernel: int, columns: int, dtype: mx.Dtype, tokens: int
) -> tuple[KdaParameters, CoreInputs]:
    """Random weights and inputs. Gates as trained models have them: exp(A_log) from 1 to 16 and steps of
    1e-3 to 1e-1 before it, so that heads keep from a few tokens to thousands."""
    keys = iter(mx.random.split(mx.random.key(11), 9))
    total = heads * width
    step = mx.exp(mx.random.uniform(-6.9, -2.3, (heads, width), key=next(keys)))
    p = KdaParameters.of(
        taps=(mx.random.normal((kernel, 3 * total), key=next(keys)) * 0.5).astype(dtype),
        a_log=mx.log(mx.random.uniform(1.0, 16.0, (heads, 1), key=next(keys))),
        decay_bias=mx.log(mx.expm1(step)),
        output_norm=mx.random.uniform(0.5, 1.5, (width,), key=next(keys)),
        eps=1e-5,
    )
    x = CoreInputs(
        projected=mx.random.normal((1, tokens, columns), key=next(keys)).astype(dtype),
        forget=mx.random.normal((1, tokens, total), key=next(keys)).astype(dtype),
        gate=mx.random.normal((1, tokens, total), key=next(keys)).astype(dtype),
        window=mx.random.normal((1, kernel - 1, 3 * total), key=next(keys)).astype(dtype),
        memory=mx.random.normal((1, heads, width, width), key=next(keys)) * 0.1,
    )
    mx.eval(x.projected, x.forget, x.gate, x.window, x.memory)
    mx.eval(p.decay_bias, p.convolution.taps, p.decay_scale)
    return p, x
