"""The engine: models, generation and the thread that owns MLX. It knows nothing of Qt.

Importing this package is cheap: MLX itself is imported on the engine thread.
"""

from engine.blas import preload_blas

preload_blas()  # before anything can import mlx.core

from engine.thread import Engine  # noqa: E402

__all__ = ["Engine"]
