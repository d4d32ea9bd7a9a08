"""Numbers below 1e-38 are zero on the threads that compute, as they are on a GPU.

A decayed memory is full of them, and an x86 processor takes some hundred cycles for each operation on
one: on the demo model's own gates the delta rule ran 1.5 times as long. Whether a thread keeps them is
in its floating-point environment, which it inherits from the thread that began it. So only the
environment of MLX's and OpenBLAS's threads is changed, never that of the program's own.
"""

import ctypes
import platform
import sys
from collections.abc import Generator
from contextlib import contextmanager

_FLUSH = 0x8040
"""MXCSR: results (bit 15) and operands (bit 6) that are subnormal count as zero."""

_MXCSR = 7
"""Its place in glibc's fenv_t for x86-64, in words of 32 bits; of 8."""


@contextmanager
def flushed_in_new_threads() -> Generator[None]:
    """Threads begun within it take subnormal numbers for zero. Elsewhere than on x86-64 Linux: nothing."""
    if sys.platform != "linux" or platform.machine() != "x86_64" or platform.libc_ver()[0] != "glibc":
        yield
        return
    library = ctypes.CDLL("libm.so.6")
    before, changed = (ctypes.c_uint32 * 8)(), (ctypes.c_uint32 * 8)()
    library.fegetenv(before)
    library.fegetenv(changed)
    changed[_MXCSR] |= _FLUSH
    library.fesetenv(changed)
    try:
        yield
    finally:
        library.fesetenv(before)
