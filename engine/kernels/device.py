"""Kernels of our own for a GPU: one body, compiled as CUDA or as Metal through a thin prelude.

A body is written in the part of C++ that both languages share and uses, besides the names of its
inputs, outputs and template parameters, only what the preludes below define. On a CPU there is none.

Tests run the CUDA form where there is a GPU; the kernels of KDA were run on one by hand. The Metal form
has never been run. Nothing here decides an answer by
itself: `engine.kernels.selection` compares every kernel with its twin in plain ops before it is used.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import mlx.core as mx

Language = Literal["cuda", "metal"]
Template = Sequence[tuple[str, int | mx.Dtype]]

WARP = 32
"""Threads that exchange registers: a CUDA warp, an Apple simdgroup."""

_HEADERS: dict[Language, str] = {
    "cuda": """
#define PG_SHARED __shared__
#define PG_SHARED_POINTER
#define PG_BARRIER __syncthreads()
__device__ __forceinline__ float pg_exchange(float x, int mask) {
  return __shfl_xor_sync(0xffffffffu, x, mask);
}
__device__ __forceinline__ float pg_exp(float x) { return expf(x); }
__device__ __forceinline__ float pg_log(float x) { return logf(x); }
__device__ __forceinline__ float pg_rsqrt(float x) { return rsqrtf(x); }
__device__ __forceinline__ float pg_fma(float a, float b, float c) { return fmaf(a, b, c); }
""",
    "metal": """
#define PG_SHARED threadgroup
#define PG_SHARED_POINTER threadgroup
#define PG_BARRIER threadgroup_barrier(mem_flags::mem_threadgroup)
inline float pg_exchange(float x, int mask) { return simd_shuffle_xor(x, ushort(mask)); }
inline float pg_exp(float x) { return metal::precise::exp(x); }
inline float pg_log(float x) { return metal::precise::log(x); }
inline float pg_rsqrt(float x) { return metal::precise::rsqrt(x); }
inline float pg_fma(float a, float b, float c) { return metal::fma(a, b, c); }
""",
}

_SHARED_HEADER = """
#define PG_WARP_SUM(x) { \\
  x += pg_exchange(x, 16); x += pg_exchange(x, 8); x += pg_exchange(x, 4); \\
  x += pg_exchange(x, 2); x += pg_exchange(x, 1); }
"""

_INDICES: dict[Language, str] = {
    "cuda": """
  const int pg_thread = int(threadIdx.x);
  const int pg_block_x = int(blockIdx.x);
  const int pg_block_y = int(blockIdx.y);
""",
    "metal": """
  const int pg_thread = int(thread_position_in_threadgroup.x);
  const int pg_block_x = int(threadgroup_position_in_grid.x);
  const int pg_block_y = int(threadgroup_position_in_grid.y);
""",
}


def language() -> Language | None:
    """What kernels for MLX's default device are written in; None on a CPU."""
    if mx.default_device().type == mx.cpu:
        return None
    return "metal" if mx.metal.is_available() else "cuda"


@dataclass(frozen=True)
class DeviceKernel:
    """A kernel by its body; compiled at its first call.

    Attributes:
        name: part of the function's name.
        inputs, outputs: argument names in the body. `name_shape` in the body is the shape of an input.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    body: str

    def source(self, form: Language) -> tuple[str, str]:
        """Header and body in one language."""
        return _HEADERS[form] + _SHARED_HEADER, _INDICES[form] + self.body

    @cached_property
    def _compiled(self) -> Any:
        form = language()
        if form is None:
            raise RuntimeError(f"{self.name}: there are no device kernels on a CPU")
        header, source = self.source(form)
        build: Any = mx.fast.metal_kernel if form == "metal" else mx.fast.cuda_kernel
        return build(
            name=f"perigee_{self.name}",
            input_names=list(self.inputs),
            output_names=list(self.outputs),
            source=source,
            header=header,
        )

    def __call__(
        self,
        arrays: Sequence[mx.array],
        *,
        blocks: tuple[int, int],
        threads: int,
        template: Template,
        shapes: Sequence[tuple[int, ...]],
        dtypes: Sequence[mx.Dtype],
    ) -> list[mx.array]:
        """Run over `blocks` (x, y) of `threads` threads each; one output per shape and dtype.

        Raises:
            RuntimeError, ValueError: what MLX raises where the kernel does not compile or launch. With lazy
                evaluation that may be as late as the evaluation of an output.
        """
        return self._compiled(
            inputs=list(arrays),
            template=list(template),
            grid=(blocks[0] * threads, blocks[1], 1),
            threadgroup=(threads, 1, 1),
            output_shapes=list(shapes),
            output_dtypes=list(dtypes),
        )
