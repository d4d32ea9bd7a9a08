"""Runs a module of the engine where nothing but MLX is installed.

    python engine/planning/bare.py engine bench -m DIR --lengths 2k,8k
    python engine/planning/bare.py engine.planning.benchmark_run ...

`import engine` brings the engine thread, and with it the packages that documents, templates and
tokenizers need. Measurements need none of them, so here the package is put in place without running
its `__init__`; every other module is what it always is.
"""

import importlib
import importlib.util
import runpy
import sys
from pathlib import Path

ENGINE = Path(__file__).resolve().parents[1]


def prepare() -> None:
    """Put the package `engine` in place without what its `__init__` imports."""
    sys.path[0] = str(ENGINE.parent)  # it was the folder of the program
    spec = importlib.util.spec_from_file_location(
        "engine", ENGINE / "__init__.py", submodule_search_locations=[str(ENGINE)]
    )
    assert spec is not None  # a file with a known suffix always has one
    sys.modules["engine"] = importlib.util.module_from_spec(spec)
    importlib.import_module("engine.blas").preload_blas()  # before anything can import mlx.core


def main(module: str) -> None:
    """Run `module` as a program; sys.argv[1:] are its arguments."""
    prepare()
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    del sys.argv[0]
    main(sys.argv[0])
