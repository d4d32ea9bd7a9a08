"""A real BLAS for MLX's CPU back end.

MLX's Linux wheels link a reference BLAS whose products are some eighty times slower than
OpenBLAS. Whichever library is opened first with global symbols serves MLX, so this must run before
`mlx.core` is imported; `engine/__init__.py` sees to that. macOS has Accelerate and needs nothing.
"""

import ctypes
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager

from engine.subnormals import flushed_in_new_threads

_CANDIDATES = ("libopenblas.so.0", "libopenblas.so")
_opened: list[ctypes.CDLL] = []


def preload_blas() -> str | None:
    """Open OpenBLAS with global symbols; return the name opened, or None if there is none.

    None is not an error: results are the same, only slower.
    """
    if sys.platform != "linux" or "mlx.core" in sys.modules:
        return None
    for name in _CANDIDATES:
        try:
            with flushed_in_new_threads():
                _opened.append(ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL))
        except OSError:
            continue
        return name
    return None


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


@contextmanager
def one_core_a_product() -> Generator[None]:
    """Within it OpenBLAS computes each product on the core that asks for it. Without OpenBLAS: nothing."""
    if not _opened:
        yield
        return
    before: int = _opened[0].openblas_get_num_threads()
    _opened[0].openblas_set_num_threads(1)
    try:
        yield
    finally:
        _opened[0].openblas_set_num_threads(before)
