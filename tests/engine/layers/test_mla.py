"""Latent attention in tiles is plain causal attention, and never builds the whole score array."""

import mlx.core as mx
import pytest

from engine.layers.linear import ROW_BLOCK, BlockedLinear, Linear
from engine.layers.mla import LatentAttention
from engine.scalars import as_float
from engine.state import LatentState

HEADS, NOPE, SHARED, RANK, VALUE, HIDDEN = 4, 16, 8, 24, 12, 32


def attention(blocked: bool = True, heads: int = HEADS) -> LatentAttention:
    keys = iter(mx.random.split(mx.random.key(5), 5))

    def draw(*shape: int) -> mx.array:
        return mx.random.normal(shape, key=next(keys)) * shape[-1] ** -0.5

    kind = BlockedLinear if blocked else Linear
    return LatentAttention(
        heads=heads,
        nope=NOPE,
        shared=SHARED,
        inputs=kind(draw(heads * (NOPE + SHARED) + RANK + SHARED, HIDDEN)),
        latent_norm=mx.ones((RANK,)),
        key_up=draw(heads, RANK, NOPE),
        value_up=draw(heads, RANK, VALUE),
        output=kind(draw(HIDDEN, heads * VALUE)),
        blocked=blocked,
    )


def written_out(layer: LatentAttention, x: mx.array) -> mx.array:
    """The formula with one score array, from reference facts: scale (n + p)^-1/2, float32 softmax."""
    batch, length = x.shape[:2]
    out = x @ layer.inputs.weight.T  # type: ignore[attr-defined] - a dense projection here
    width = layer.heads * (NOPE + SHARED)
    q = out[..., :width].reshape(batch, length, layer.heads, NOPE + SHARED).swapaxes(1, 2)
    latent, shared = out[..., width : width + RANK], out[..., width + RANK :]
    latent = latent * mx.rsqrt((latent * latent).mean(-1, keepdims=True) + 1e-6)
    k = mx.einsum("bsr,hrn->bhsn", latent, layer.key_up)
    v = mx.einsum("bsr,hrd->bhsd", latent, layer.value_up)
    scores = q[..., :NOPE] @ k.swapaxes(-1, -2) + q[..., NOPE:] @ shared[:, None].swapaxes(-1, -2)
    mask = mx.arange(length)[None] > mx.arange(length)[:, None]
    scores = mx.where(mask, -mx.inf, scores * (NOPE + SHARED) ** -0.5)
    mixed = (mx.softmax(scores, axis=-1) @ v).swapaxes(1, 2).reshape(batch, length, -1)
    return mixed @ layer.output.weight.T  # type: ignore[attr-defined]


def relative(a: mx.array, b: mx.array) -> float:
    return as_float(mx.abs(a - b).max() / mx.abs(b).max())


def chunk(layer: LatentAttention, x: mx.array, state: LatentState) -> mx.array:
    """The layer over rows of any number; on a CPU they are given in whole blocks."""
    rows = x.shape[1]
    padded = mx.pad(x, [(0, 0), (0, -rows % ROW_BLOCK if layer.blocked else 0), (0, 0)])
    return layer(padded, state, rows)[:, :rows]


@pytest.mark.parametrize("tile", [0, 64, 128, 512])
@pytest.mark.parametrize("length", [64, 192, 512])
def test_tiles_give_plain_causal_attention(tile: int, length: int, monkeypatch: pytest.MonkeyPatch):
    """`tile` 0 is the form for a CPU, the others that for a GPU with so many rows in a tile."""
    monkeypatch.setattr("engine.layers.mla.SCORE_BYTES", tile * HEADS * length * 4)
    layer = attention(blocked=not tile)
    x = mx.random.normal((1, length, HIDDEN), key=mx.random.key(length))
    got = layer(x, LatentState(1, RANK + SHARED, mx.float32), length)
    assert relative(got, written_out(layer, x)) < 1e-5


@pytest.mark.parametrize("blocked", [True, False])
@pytest.mark.parametrize("cut", [64, 100])
def test_a_second_chunk_sees_all_of_the_first(blocked: bool, cut: int):
    layer = attention(blocked)
    x = mx.random.normal((1, 192, HIDDEN), key=mx.random.key(4))
    state = LatentState(1, RANK + SHARED, mx.float32)
    parts = [chunk(layer, x[:, :cut], state), chunk(layer, x[:, cut:], state)]
    assert relative(mx.concatenate(parts, axis=1), written_out(layer, x)) < 1e-5


@pytest.mark.parametrize("blocked", [True, False])
@pytest.mark.parametrize("read", [0, 20])
def test_one_token_at_a_time_gives_plain_causal_attention(blocked: bool, read: int):
    """After nothing, and after a chunk, when the rows come in two pieces."""
    layer = attention(blocked)
    x = mx.random.normal((1, 40, HIDDEN), key=mx.random.key(1))
    state = LatentState(1, RANK + SHARED, mx.float32)
    parts = [chunk(layer, x[:, :read], state)] if read else []
    parts += [layer(x[:, i : i + 1], state, 1) for i in range(read, 40)]
    assert relative(mx.concatenate(parts, axis=1), written_out(layer, x)) < 1e-5


def test_heads_taken_in_groups_give_the_same(monkeypatch: pytest.MonkeyPatch):
    layer = attention()
    x = mx.random.normal((1, 256, HIDDEN), key=mx.random.key(2))
    whole = layer(x, LatentState(1, RANK + SHARED, mx.float32), 256)
    per_head = 256 * (NOPE + SHARED + VALUE) * 4
    for bound in (1, per_head, 3 * per_head):
        monkeypatch.setattr("engine.layers.mla.EXPANSION_BYTES", bound)
        grouped = layer(x, LatentState(1, RANK + SHARED, mx.float32), 256)
        assert relative(grouped, whole) < 1e-6


def test_the_heads_by_chunk_by_context_array_is_never_there():
    heads, length = 8, 2048
    layer = attention(heads=heads)
    x = mx.random.normal((1, length, HIDDEN), key=mx.random.key(3))
    state = LatentState(1, RANK + SHARED, mx.float32)
    mx.eval(layer(x, state, length), state.pending())
    mx.clear_cache()
    mx.reset_peak_memory()
    held = mx.get_active_memory()
    mx.eval(layer(x, state, length), state.pending())
    whole = heads * length * (2 * length) * 4
    assert mx.get_peak_memory() - held < whole / 3
