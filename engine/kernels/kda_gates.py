"""What stands before and after the delta rule in a KDA block, as two device kernels.

`kda_prepare` is the short convolution with silu, the l2 norms of queries and keys, the forget gate and
the write strength; `kda_finish` is the output norm and its gate. In plain ops these are some forty
passes over arrays, which is what a decode step of one token spends its time launching. Their twin is
`plain_core` in `engine.layers.kda_core`. All arithmetic is float32, so rounding differs from the twin,
which rounds the convolution to the dtype of the activations after each tap.

The CUDA form has been run; the Metal form never has (see `engine.kernels.device`).
"""

import mlx.core as mx

from engine.kernels.device import WARP, DeviceKernel

_RUN = 8
"""Tokens that one warp of `kda_prepare` takes in a row: they share the convolution's window."""

_PREPARE = """
  constexpr int TOTAL = HEADS * D;
  constexpr int PER = D / 32;                    // channels per lane
  const int tokens = x_shape[1];
  const size_t batch = pg_block_y / HEADS;
  const int head = pg_block_y % HEADS;
  const int first = pg_block_x * RUN;
  const int last = first + RUN < tokens ? first + RUN : tokens;

  for (int part = 0; part < 3; ++part) {         // queries, keys, values
    float past[PER][KERNEL];                     // inputs of the last KERNEL tokens, newest last
    float tap[PER][KERNEL];
    for (int p = 0; p < PER; ++p) {
      const int channel = part * TOTAL + head * D + p * 32 + pg_thread;
      for (int j = 0; j < KERNEL; ++j) { tap[p][j] = float(taps[j * 3 * TOTAL + channel]); }
      past[p][0] = 0.0f;
      for (int j = 1; j < KERNEL; ++j) {
        const int t = first - KERNEL + j;
        past[p][j] = t < 0
            ? float(window[(batch * (KERNEL - 1) + KERNEL - 1 + t) * 3 * TOTAL + channel])
            : float(x[(batch * tokens + t) * WIDTH + channel]);
      }
    }
    for (int t = first; t < last; ++t) {
      float y[PER];
      float sum = 0.0f;
      for (int p = 0; p < PER; ++p) {
        const int channel = part * TOTAL + head * D + p * 32 + pg_thread;
        for (int j = 1; j < KERNEL; ++j) { past[p][j - 1] = past[p][j]; }
        past[p][KERNEL - 1] = float(x[(batch * tokens + t) * WIDTH + channel]);
        float a = 0.0f;
        for (int j = 0; j < KERNEL; ++j) { a = pg_fma(past[p][j], tap[p][j], a); }
        y[p] = a / (1.0f + pg_exp(-a));
        sum = pg_fma(y[p], y[p], sum);
      }
      float scale = 1.0f;
      if (part < 2) {
        PG_WARP_SUM(sum);
        scale = pg_rsqrt(sum + 1e-6f) * (part == 0 ? pg_rsqrt(float(D)) : 1.0f);
      }
      for (int p = 0; p < PER; ++p) {
        const size_t at = ((batch * tokens + t) * HEADS + head) * D + p * 32 + pg_thread;
        if (part == 0) { q[at] = y[p] * scale; }
        if (part == 1) { k[at] = y[p] * scale; }
        if (part == 2) { v[at] = static_cast<T>(y[p]); }
      }
    }
    if (last == tokens) {                        // the next window: the last KERNEL - 1 inputs
      for (int p = 0; p < PER; ++p) {
        const int channel = part * TOTAL + head * D + p * 32 + pg_thread;
        for (int j = 1; j < KERNEL; ++j) {
          new_window[(batch * (KERNEL - 1) + j - 1) * 3 * TOTAL + channel] = static_cast<T>(past[p][j]);
        }
      }
    }
  }

  for (int t = first; t < last; ++t) {
    for (int p = 0; p < PER; ++p) {
      const int channel = head * D + p * 32 + pg_thread;
      const float a = float(forget[(batch * tokens + t) * TOTAL + channel]) + decay_bias[channel];
      const float e = pg_exp(a < 0.0f ? a : -a);
      const float grown = e < 1e-3f ? e * (1.0f - 0.5f * e) : pg_log(1.0f + e);   // log(1 + e)
      g[(batch * tokens + t) * TOTAL + channel] = -decay_scale[head] * ((a > 0.0f ? a : 0.0f) + grown);
    }
    if (pg_thread == 0) {
      const float b = float(x[(batch * tokens + t) * WIDTH + WIDTH - HEADS + head]);
      beta[(batch * tokens + t) * HEADS + head] = 1.0f / (1.0f + pg_exp(-b));
    }
  }
"""

_FINISH = """
  constexpr int PER = D / 32;
  const int lane = pg_thread % 32;
  const size_t row = size_t(pg_block_x) * WARPS + pg_thread / 32;      // (batch, token, head)
  if (row >= size_t(o_shape[0]) * o_shape[1] * HEADS) { return; }
  float value[PER];
  float sum = 0.0f;
  for (int p = 0; p < PER; ++p) {
    value[p] = o[row * D + p * 32 + lane];
    sum = pg_fma(value[p], value[p], sum);
  }
  PG_WARP_SUM(sum);
  const float scale = pg_rsqrt(sum / float(D) + eps[0]);
  for (int p = 0; p < PER; ++p) {
    const float gate = 1.0f / (1.0f + pg_exp(-float(z[row * D + p * 32 + lane])));
    y[row * D + p * 32 + lane] = static_cast<T>(value[p] * scale * norm[p * 32 + lane] * gate);
  }
"""

_prepare = DeviceKernel(
    "kda_prepare",
    ("x", "forget", "window", "taps", "decay_scale", "decay_bias"),
    ("q", "k", "v", "g", "beta", "new_window"),
    _PREPARE,
)
_finish = DeviceKernel("kda_finish", ("o", "z", "norm", "eps"), ("y",), _FINISH)

_FINISH_WARPS = 4


def kda_prepare(
    x: mx.array,
    forget: mx.array,
    window: mx.array,
    taps: mx.array,
    decay_scale: mx.array,
    decay_bias: mx.array,
) -> tuple[mx.array, mx.array, mx.array, mx.array, mx.array, mx.array]:
    """Inputs of the delta rule from the projections of a KDA block of H heads of width D; P = H * D.

    Args:
        x: [B, T, W]; its first 3P columns are q | k | v before the convolution, its last H the write
            strength before the sigmoid.
        forget: [B, T, P], the forget gate's projection.
        window: [B, K-1, 3P], the inputs before x, in the dtype of x.
        taps: [K, 3P]; the last multiplies the current token.
        decay_scale: [H, 1] float32, exp(A_log). decay_bias: [H, D] float32.

    Returns:
        q (with the read-out scale D^-1/2) and k [B, T, H, D] float32, v [B, T, H, D] in the dtype of x,
        g [B, T, H, D] float32, beta [B, T, H] float32 and the next window [B, K-1, 3P].
    """
    batch, tokens, width = x.shape
    heads, per_head = decay_bias.shape
    shape = (batch, tokens, heads, per_head)
    q, k, v, g, beta, new_window = _prepare(
        [x, forget, window, taps, decay_scale, decay_bias],
        blocks=(-(-tokens // _RUN), batch * heads),
        threads=WARP,
        template=[
            ("T", x.dtype),
            ("HEADS", heads),
            ("D", per_head),
            ("WIDTH", width),
            ("KERNEL", taps.shape[0]),
            ("RUN", _RUN),
        ],
        shapes=[shape, shape, shape, shape, (batch, tokens, heads), window.shape],
        dtypes=[mx.float32, mx.float32, x.dtype, mx.float32, mx.float32, x.dtype],
    )
    return q, k, v, g, beta, new_window


def kda_finish(o: mx.array, z: mx.array, norm: mx.array, eps: mx.array) -> mx.array:
    """rms_norm(o) * norm * sigmoid(z), per head.

    Args:
        o: [B, T, H, D] float32. z: [B, T, H * D], the output gate's projection.
        norm: [D] float32. eps: [1] float32.

    Returns:
        [B, T, H * D] in the dtype of z.
    """
    batch, tokens, heads, per_head = o.shape
    (y,) = _finish(
        [o, z, norm, eps],
        blocks=(-(-batch * tokens * heads // _FINISH_WARPS), 1),
        threads=WARP * _FINISH_WARPS,
        template=[("T", z.dtype), ("HEADS", heads), ("D", per_head), ("WARPS", _FINISH_WARPS)],
        shapes=[(batch, tokens, heads * per_head)],
        dtypes=[z.dtype],
    )
    return y
