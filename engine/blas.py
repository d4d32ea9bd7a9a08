"""A real BLAS for MLX's CPU back end.

MLX's Linux wheels link a reference BLAS whose products are some eighty times slower than
OpenBLAS. Whichever library is opened first with global symbols serves MLX, so this must run before
`mlx.core` is imported; `engine/__init__.py` sees to that. macOS has Accelerate and needs nothing.
"""

import ctypes
import sys

_CANDIDATES = ("libopenblas.so.0", "libopenblas.so")


def preload_blas() -> str | None:
    """Open OpenBLAS with global symbols; return the name opened, or None if there is none.

    None is not an error: results are the same, only slower.
    """
    if sys.platform != "linux" or "mlx.core" in sys.modules:
        return None
    for name in _CANDIDATES:
        try:
            ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
        except OSError:
            continue
        return name
    return None
