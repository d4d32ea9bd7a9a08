"""The gated delta rule as a device kernel: token by token, with the state in registers.

Its twin in plain ops is `engine.kernels.delta_rule`. A head's matrix S [Dv, Dk] is spread over threads:
eight lanes share a row, each thread holds the same channels of `_ROWS` rows. A tile of tokens is staged
in shared memory while the one before is worked on. Because each token does the same arithmetic wherever
a call begins, cuts between calls change no bit at any position.

The CUDA form has been run; the Metal form never has (see `engine.kernels.device`).
"""

import mlx.core as mx

from engine.kernels.device import WARP, DeviceKernel

_LANES = 8
_ROWS = 2
_WARPS = 4
_BLOCK_ROWS = WARP // _LANES * _WARPS * _ROWS

_BODY = """
  constexpr int LANES = 8;
  constexpr int TILE = 8;                       // tokens in shared memory; one per lane, see `kept`
  constexpr int QUADS = DK / 32;                // groups of four channels per lane
  constexpr int THREADS = 32 * WARPS;
  constexpr int BLOCK_ROWS = 4 * WARPS * ROWS;
  constexpr int LOADS = TILE * DK / THREADS;
  constexpr int ROW_LOADS = (TILE * BLOCK_ROWS + THREADS - 1) / THREADS;
  alignas(16) PG_SHARED float shared_q[2][TILE][DK];
  alignas(16) PG_SHARED float shared_k[2][TILE][DK];
  alignas(16) PG_SHARED float shared_fade[2][TILE][DK];
  PG_SHARED float shared_v[2][TILE][BLOCK_ROWS];
  PG_SHARED float shared_beta[2][TILE];

  const int tokens = q_shape[1];
  const size_t batch = pg_block_y / HEADS;
  const int head = pg_block_y % HEADS;
  const int lane = pg_thread % LANES;
  const int group_row = pg_thread / LANES * ROWS;          // within the block
  const int first_row = pg_block_x * BLOCK_ROWS + group_row;

  float s[ROWS][QUADS * 4];
  for (int r = 0; r < ROWS; ++r) {
    const size_t at = ((batch * HEADS + head) * DV + first_row + r) * DK + lane * 4;
    for (int c = 0; c < QUADS; ++c) {
      for (int j = 0; j < 4; ++j) { s[r][c * 4 + j] = state[at + c * 32 + j]; }
    }
  }

  float next_q[LOADS], next_k[LOADS], next_fade[LOADS], next_v[ROW_LOADS], next_beta = 0.0f;
  for (int tile = -1, start = -TILE; start < tokens; ++tile, start += TILE) {
    const int side = tile & 1;
    if (start >= 0) {
      for (int i = 0; i < LOADS; ++i) {
        const int e = i * THREADS + pg_thread;
        shared_q[side][e / DK][e % DK] = next_q[i];
        shared_k[side][e / DK][e % DK] = next_k[i];
        shared_fade[side][e / DK][e % DK] = pg_exp(next_fade[i]);
      }
      for (int i = 0; i < ROW_LOADS; ++i) {
        const int e = i * THREADS + pg_thread;
        if (e < TILE * BLOCK_ROWS) { shared_v[side][e / BLOCK_ROWS][e % BLOCK_ROWS] = next_v[i]; }
      }
      if (pg_thread < TILE) { shared_beta[side][pg_thread] = next_beta; }
      PG_BARRIER;
    }
    const int ahead = start + TILE;
    for (int i = 0; i < LOADS; ++i) {
      const int e = i * THREADS + pg_thread;
      const int t = ahead + e / DK;
      const size_t at = ((batch * tokens + t) * HEADS + head) * DK + e % DK;
      const bool there = t < tokens;
      next_q[i] = there ? float(q[at]) : 0.0f;
      next_k[i] = there ? float(k[at]) : 0.0f;
      next_fade[i] = there ? float(g[at]) : 0.0f;
    }
    for (int i = 0; i < ROW_LOADS; ++i) {
      const int e = i * THREADS + pg_thread;
      const int t = ahead + e / BLOCK_ROWS;
      const size_t at = ((batch * tokens + t) * HEADS + head) * DV + pg_block_x * BLOCK_ROWS + e % BLOCK_ROWS;
      next_v[i] = e < TILE * BLOCK_ROWS && t < tokens ? float(v[at]) : 0.0f;
    }
    if (pg_thread < TILE) {
      const int t = ahead + pg_thread;
      next_beta = t < tokens ? float(beta[(batch * tokens + t) * HEADS + head]) : 0.0f;
    }
    if (start < 0) { continue; }

    const int here = tokens - start < TILE ? tokens - start : TILE;
    float kept[ROWS];                           // lane i keeps the outputs of the tile's token i
    for (int r = 0; r < ROWS; ++r) { kept[r] = 0.0f; }
#pragma unroll 4
    for (int i = 0; i < here; ++i) {
      const PG_SHARED_POINTER float4* k4 = (const PG_SHARED_POINTER float4*)(&shared_k[side][i][0]);
      const PG_SHARED_POINTER float4* q4 = (const PG_SHARED_POINTER float4*)(&shared_q[side][i][0]);
      const PG_SHARED_POINTER float4* f4 = (const PG_SHARED_POINTER float4*)(&shared_fade[side][i][0]);
      float kk[QUADS * 4];
      float found[ROWS][4], read[ROWS][4];
      for (int r = 0; r < ROWS; ++r) {
        for (int j = 0; j < 4; ++j) { found[r][j] = 0.0f; read[r][j] = 0.0f; }
      }
#pragma unroll
      for (int c = 0; c < QUADS; ++c) {
        const float4 kx = k4[c * LANES + lane];
        const float4 fx = f4[c * LANES + lane];
        kk[c * 4] = kx.x; kk[c * 4 + 1] = kx.y; kk[c * 4 + 2] = kx.z; kk[c * 4 + 3] = kx.w;
        const float fade[4] = {fx.x, fx.y, fx.z, fx.w};
        for (int r = 0; r < ROWS; ++r) {
          for (int j = 0; j < 4; ++j) {
            s[r][c * 4 + j] *= fade[j];
            found[r][j] = pg_fma(s[r][c * 4 + j], kk[c * 4 + j], found[r][j]);
          }
        }
      }
      const float strength = shared_beta[side][i];
      float u[ROWS];
      for (int r = 0; r < ROWS; ++r) {
        float sum = (found[r][0] + found[r][1]) + (found[r][2] + found[r][3]);
        sum += pg_exchange(sum, 4);
        sum += pg_exchange(sum, 2);
        sum += pg_exchange(sum, 1);
        u[r] = strength * (shared_v[side][i][group_row + r] - sum);
      }
#pragma unroll
      for (int c = 0; c < QUADS; ++c) {
        const float4 qx = q4[c * LANES + lane];
        const float qq[4] = {qx.x, qx.y, qx.z, qx.w};
        for (int r = 0; r < ROWS; ++r) {
          for (int j = 0; j < 4; ++j) {
            s[r][c * 4 + j] = pg_fma(u[r], kk[c * 4 + j], s[r][c * 4 + j]);
            read[r][j] = pg_fma(s[r][c * 4 + j], qq[j], read[r][j]);
          }
        }
      }
      for (int r = 0; r < ROWS; ++r) {
        float sum = (read[r][0] + read[r][1]) + (read[r][2] + read[r][3]);
        sum += pg_exchange(sum, 4);
        sum += pg_exchange(sum, 2);
        sum += pg_exchange(sum, 1);
        kept[r] = lane == i ? sum : kept[r];
      }
    }
    if (lane < here) {
      const size_t at = ((batch * tokens + start + lane) * HEADS + head) * DV + first_row;
      for (int r = 0; r < ROWS; ++r) { out[at + r] = kept[r]; }
    }
  }

  for (int r = 0; r < ROWS; ++r) {
    const size_t at = ((batch * HEADS + head) * DV + first_row + r) * DK + lane * 4;
    for (int c = 0; c < QUADS; ++c) {
      for (int j = 0; j < 4; ++j) { new_state[at + c * 32 + j] = s[r][c * 4 + j]; }
    }
  }
"""

_kernel = DeviceKernel("kda_scan", ("q", "k", "v", "g", "beta", "state"), ("out", "new_state"), _BODY)


def scan_fits(key_width: int, value_width: int) -> bool:
    """Whether the kernel is written for heads of these widths."""
    return key_width % WARP == 0 and key_width <= 256 and value_width % _BLOCK_ROWS == 0


def kda_scan(
    q: mx.array, k: mx.array, v: mx.array, g: mx.array, beta: mx.array, state: mx.array
) -> tuple[mx.array, mx.array]:
    """The recurrence over T tokens, continuing `state`; the same function as `delta_rule_blocks`.

    Args:
        q, k: [B, T, H, Dk]; the read-out scale is already inside q.
        v: [B, T, H, Dv].
        g: [B, T, H, Dk] float32, log-decay, every entry <= 0 (-inf allowed).
        beta: [B, T, H] float32, write strength.
        state: [B, H, Dv, Dk] float32. Widths as `scan_fits` allows.

    Returns:
        Outputs [B, T, H, Dv] float32 and the new state [B, H, Dv, Dk] float32.
    """
    batch, tokens, heads, key_width = q.shape
    value_width = v.shape[-1]
    out, new_state = _kernel(
        [q, k, v, g, beta, state],
        blocks=(value_width // _BLOCK_ROWS, batch * heads),
        threads=WARP * _WARPS,
        template=[
            ("HEADS", heads),
            ("DK", key_width),
            ("DV", value_width),
            ("WARPS", _WARPS),
            ("ROWS", _ROWS),
        ],
        shapes=[(batch, tokens, heads, value_width), (batch, heads, value_width, key_width)],
        dtypes=[mx.float32, mx.float32],
    )
    return out, new_state
