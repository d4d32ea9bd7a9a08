"""The delta rule one token at a time in float64, and data on which kernels have failed before."""

from dataclasses import dataclass

import mlx.core as mx
import numpy as np

Array = np.ndarray

GATES = (
    "none",
    "mild",
    "mixed",
    "strong",
    "bounded",
    "at the bound",
    "spikes",
    "one key",
)
"""What `Case.draw` can draw; see `_log_decay`."""


@dataclass(frozen=True)
class Case:
    """Inputs of the delta rule. q, k, g [B, T, H, Dk]; v [B, T, H, Dv]; beta [B, T, H]; state [B, H, Dv, Dk].

    All are float64 arrays that float32 holds exactly, so that an error is the kernel's own.
    """

    q: Array
    k: Array
    v: Array
    g: Array
    beta: Array
    state: Array

    @staticmethod
    def draw(
        gates: str, tokens: int, *, batch: int = 1, heads: int = 2, dk: int = 16, dv: int = 12, seed: int = 0
    ) -> "Case":
        """A case with the given forget gates and an incoming state that is neither zero nor symmetric."""
        rng = np.random.default_rng([seed, tokens, GATES.index(gates)])
        lead = (batch, tokens, heads)
        q = _unit(rng.standard_normal((*lead, dk))) * dk**-0.5
        k = _unit(rng.standard_normal((*lead, dk)))
        v = rng.standard_normal((*lead, dv))
        beta = 1.0 / (1.0 + np.exp(-rng.standard_normal(lead)))
        if gates == "one key":
            k = np.repeat(k[:, :1], tokens, axis=1)
            beta = np.full(lead, 0.999)
        g = _log_decay(gates, rng, (*lead, dk))
        state = rng.standard_normal((batch, heads, dv, dk))
        return Case(*(x.astype(np.float32).astype(np.float64) for x in (q, k, v, g, beta, state)))

    def arrays(self) -> tuple[mx.array, mx.array, mx.array, mx.array, mx.array, mx.array]:
        """The inputs as float32 MLX arrays, in the kernel's order."""
        q, k, v, g, beta, state = (
            mx.array(x.astype(np.float32)) for x in (self.q, self.k, self.v, self.g, self.beta, self.state)
        )
        return q, k, v, g, beta, state


def _unit(x: Array) -> Array:
    return x / np.sqrt((x * x).sum(axis=-1, keepdims=True) + 1e-6)


def _log_uniform(rng: np.random.Generator, low: float, high: float, shape: tuple[int, ...]) -> Array:
    return -np.exp(rng.uniform(np.log(low), np.log(high), shape))


def _log_decay(gates: str, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    if gates == "none":
        return np.zeros(shape)
    if gates == "mild":
        return _log_uniform(rng, 1e-4, 0.1, shape)
    if gates == "mixed":
        return _log_uniform(rng, 1e-5, 160.0, shape)
    if gates == "strong":
        return _log_uniform(rng, 5.0, 160.0, shape)
    if gates == "bounded":
        return -5.0 / (1.0 + np.exp(-3.0 * rng.standard_normal(shape)))
    if gates == "at the bound":
        return np.full(shape, -5.0)
    if gates == "spikes":  # mild, and everything is forgotten now and then
        g = _log_uniform(rng, 1e-4, 0.1, shape)
        g[:, ::37] = -2000.0
        return g
    if gates == "one key":  # the same key again and again, written almost whole, hardly forgotten
        return np.full(shape, -1e-6)
    raise ValueError(f"no gates are called {gates!r}")


def run(case: Case) -> tuple[Array, Array]:
    """Outputs [B, T, H, Dv] and the last state [B, H, Dv, Dk], token by token in float64."""
    state = case.state.copy()
    outputs = np.empty(case.v.shape)
    for t in range(case.q.shape[1]):
        key = case.k[:, t, :, None, :]
        state = state * np.exp(case.g[:, t, :, None, :])
        known = (state * key).sum(axis=-1)
        learnt = case.beta[:, t, :, None] * (case.v[:, t] - known)
        state = state + learnt[..., None] * key
        outputs[:, t] = (state * case.q[:, t, :, None, :]).sum(axis=-1)
    return outputs, state


def relative_error(found: mx.array, wanted: Array) -> float:
    """Largest difference, in parts of the largest wanted value."""
    got = np.array(found.astype(mx.float32)).astype(np.float64)
    assert got.shape == wanted.shape
    assert np.isfinite(got).all()
    return float(np.abs(got - wanted).max() / (np.abs(wanted).max() + 1e-30))
