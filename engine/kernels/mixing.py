"""Weighted sums of rows taken from an array: what ends a mixture of experts.

Tests run the CUDA form where there is a GPU, which is still to be done; the Metal form has never been
run (see `engine.kernels.device`).
"""

import mlx.core as mx

from engine.kernels.device import DeviceKernel

_THREADS = 256

_BODY = """
  const size_t token = pg_block_x;
  for (int d = pg_thread; d < D; d += THREADS) {
    float sum = 0.0f;
    for (int j = 0; j < K; ++j) {
      sum = pg_fma(weights[token * K + j], float(rows[size_t(places[token * K + j]) * D + d]), sum);
    }
    y[token * D + d] = static_cast<T>(sum);
  }
"""

_kernel = DeviceKernel("mix_rows", ("rows", "places", "weights"), ("y",), _BODY)


def mix_rows(rows: mx.array, places: mx.array, weights: mx.array) -> mx.array:
    """y[n] = sum over j of weights[n, j] * rows[places[n, j]], summed in float32.

    Args:
        rows: [R, D]. places: [N, k] int32. weights: [N, k] float32.

    Returns:
        [N, D] in the dtype of rows.
    """
    return weigh(rows[places], weights)


def weigh(outputs: mx.array, weights: mx.array) -> mx.array:
    """The sum of outputs [N, k, D] with weights [N, k] float32, in float32; [N, D] in their dtype."""
    return (outputs * weights[..., None]).sum(axis=-2).astype(outputs.dtype)


def mix_rows_kernel(rows: mx.array, places: mx.array, weights: mx.array) -> mx.array:
    """`mix_rows` as a device kernel, without the array of taken rows between."""
    width, (tokens, k) = rows.shape[1], places.shape
    (y,) = _kernel(
        [rows, places, weights],
        blocks=(tokens, 1),
        threads=_THREADS,
        template=[("T", rows.dtype), ("D", width), ("K", k), ("THREADS", _THREADS)],
        shapes=[(tokens, width)],
        dtypes=[rows.dtype],
    )
    return y
