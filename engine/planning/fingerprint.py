"""Whether a forward pass changed anything a model holds."""

import mlx.core as mx

from engine.scalars import as_float


def fingerprint(model: object) -> dict[str, object]:
    """Every attribute reachable from `model`, by path.

    An array is represented by its identity, shape and sum, anything else plain by its value. Two
    fingerprints of one model are equal exactly if nothing was rebound, added, removed or rewritten.
    """
    found: dict[str, object] = {}
    seen: set[int] = set()

    def walk(value: object, path: str) -> None:
        if isinstance(value, mx.array):
            total = as_float(value.astype(mx.float32).sum())
            found[path] = (id(value), tuple(value.shape), str(value.dtype), total)
        elif isinstance(value, str | int | float | bool | bytes | type(None)):
            found[path] = value
        elif isinstance(value, list | tuple | set | frozenset):
            found[path] = (type(value).__name__, len(value))
            for index, item in enumerate(value):
                walk(item, f"{path}[{index}]")
        elif isinstance(value, dict):
            found[path] = ("dict", len(value))
            for key, item in value.items():
                walk(item, f"{path}[{key!r}]")
        elif hasattr(value, "__dict__") and id(value) not in seen:
            seen.add(id(value))
            for name, item in vars(value).items():
                walk(item, f"{path}.{name}")

    walk(model, "model")
    return found
