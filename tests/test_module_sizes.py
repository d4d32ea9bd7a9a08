"""Small modules, small functions: split by meaning before a file becomes one that nobody wants to open."""

import ast
from pathlib import Path

MODULE_LINES = 400
FUNCTION_LINES = 60

# path, or path:function -> why it is better whole. Keep this short.
ALLOWED = {
    "engine/api.py": "the one list of every command and event, which reads best in one place",
}


def modules(root: Path) -> list[Path]:
    return sorted([*root.glob("app/**/*.py"), *root.glob("engine/**/*.py")])


def functions(path: Path) -> list[tuple[str, int]]:
    """Name and length in lines, decorators and docstring included, of each function in a module."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [
        (node.name, (node.end_lineno or node.lineno) - node.lineno + 1)
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]


def too_long(root: Path) -> dict[str, int]:
    found: dict[str, int] = {}
    for path in modules(root):
        name = path.relative_to(root).as_posix()
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if lines > MODULE_LINES:
            found[name] = lines
        found |= {f"{name}:{function}": n for function, n in functions(path) if n > FUNCTION_LINES}
    return found


def test_no_module_or_function_is_too_long(root: Path):
    assert {name: n for name, n in too_long(root).items() if name not in ALLOWED} == {}


def test_no_exception_outlives_its_reason(root: Path):
    assert set(ALLOWED) <= set(too_long(root))


def test_a_long_function_is_seen(tmp_path: Path):
    folder = tmp_path / "engine"
    folder.mkdir()
    (folder / "long.py").write_text("def long():\n" + "    pass\n" * 60, encoding="utf-8")
    (folder / "longer.py").write_text("\n" * 401, encoding="utf-8")
    assert too_long(tmp_path) == {"engine/long.py:long": 61, "engine/longer.py": 401}
