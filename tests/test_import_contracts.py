"""The walls between the rooms of the house, and that the tool which guards them really bites."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def imported_by(statement: str, root: Path) -> set[str]:
    """Modules in memory after `statement` ran in a fresh process."""
    code = f"{statement}\nimport sys\nprint('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    # The working folder of `-c` is the first entry of sys.path: the copy is linted, not the original.
    code = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    return subprocess.run(
        [sys.executable, "-c", code, "--no-cache", "--no-logo"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(folder), "NO_COLOR": "1", "COLUMNS": "200"},
    )


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Path:
    folder = tmp_path_factory.mktemp("contracts")
    for name in ("app", "engine"):
        shutil.copytree(root / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(root / "pyproject.toml", folder)
    return folder


def test_the_api_brings_neither_mlx_nor_qt(root: Path):
    modules = imported_by("import engine.api", root)
    assert not {name for name in modules if name.split(".")[0] in {"mlx", "PySide6", "shiboken6", "numpy"}}


def test_the_engine_package_can_be_imported_without_mlx(root: Path):
    assert "mlx.core" not in imported_by("import engine\nfrom engine import Engine", root)


def test_the_window_can_be_imported_without_mlx(root: Path):
    modules = imported_by("import app.window", root)
    assert "mlx.core" not in modules
    assert "PySide6.QtWidgets" in modules


def test_the_contracts_hold(copy: Path):
    done = lint_imports(copy)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("where", "planted", "contract"),
    [
        ("app/planted.py", "import mlx.core", "The window never touches MLX"),
        ("app/planted.py", "from engine.thread import Engine", "The window knows of the engine only"),
        ("app/chat/planted.py", "import engine.state", "The window knows of the engine only"),
        ("app/chat/planted.py", "from engine import Engine", "Only the bridge holds an Engine"),
        ("engine/planted.py", "from PySide6.QtCore import QObject", "The engine knows nothing of Qt"),
        ("engine/planted.py", "import app.window", "The engine knows nothing of Qt"),
        ("engine/planted.py", "import transformers", "Nothing of ours is computed by another engine"),
        ("engine/layers/planted.py", "import engine.generation.sampling", "Models and layers know nothing"),
        ("engine/models/planted.py", "from engine.text import tokenizer", "Models and layers know nothing"),
        ("engine/generation/planted.py", "import engine.models.kimi_linear", "Generation knows models only"),
        ("engine/generation/planted.py", "import engine.layers.kda", "Generation knows models only"),
        ("engine/kernels/planted.py", "import engine.state", "Kernels know nothing but arrays"),
    ],
)
def test_a_planted_import_is_caught(copy: Path, where: str, planted: str, contract: str):
    path = copy / where
    path.write_text(f"{planted}\n", encoding="utf-8")
    try:
        done = lint_imports(copy)
    finally:
        path.unlink()
    assert done.returncode != 0
    broken = [line for line in done.stdout.splitlines() if " BROKEN" in line]
    assert any(line.startswith(contract) for line in broken), done.stdout + done.stderr


def test_the_oracle_is_named_in_the_benchmark_only(root: Path):
    """A dynamic import is invisible to the contracts, so the names themselves are looked for."""
    offenders = [
        f"{path.relative_to(root)}:{node.lineno}"
        for path in [*root.glob("engine/**/*.py"), *root.glob("app/**/*.py")]
        if not path.relative_to(root).as_posix().startswith("engine/planning/benchmark")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node.value.split(".")[0] in {"mlx_lm", "transformers"}
    ]
    assert offenders == []
