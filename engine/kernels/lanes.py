"""Independent parts of a computation on several cores.

MLX's CPU back end runs the operations of a stream one after another on one core. Only the BLAS inside
a product uses more, and gains little from them at the sizes of a model. So parts that do not depend on
each other are handed out over one stream a core, in turns of a few operations: MLX holds the caller
back while about a hundred operations are outstanding, and with larger turns the other cores would have
nothing to do meanwhile. A GPU has one lane: there, part follows part.
"""

import threading
from collections import deque
from collections.abc import Generator, Iterable
from itertools import islice
from typing import TypeVar

import mlx.core as mx

from engine import blas
from engine.subnormals import flushed_in_new_threads

R = TypeVar("R")

Part = Generator[Iterable[mx.array], None, R]
"""Yields, after every few operations, arrays that may begin; returns its result."""

_MOST_LANES = 8


_thread = threading.local()


def prepare_thread() -> None:
    """Give the running thread streams on which subnormal numbers are zero; for a CPU, once a thread.

    Whoever will compute with a model calls it, through loading one. On a GPU it does nothing.
    """
    if mx.default_device().type != mx.cpu or hasattr(_thread, "lanes"):
        return
    with flushed_in_new_threads():
        own = mx.new_stream(mx.cpu)
        _thread.lanes = tuple(mx.new_stream(mx.cpu) for _ in range(lane_count()))
        mx.eval([mx.zeros(1, stream=stream) + 1 for stream in (own, *_thread.lanes)])
    mx.set_default_stream(own)


def lane_count() -> int:
    """How many parts run at once: 1 on a GPU, and as many as there are cores on a CPU."""
    return min(blas.cores(), _MOST_LANES) if mx.default_device().type == mx.cpu else 1


def run_in_lanes(parts: Iterable[Part[R]]) -> list[R]:
    """Run every part to its end, as many at once as there are lanes, turn by turn; results in order.

    A part may use arrays of an earlier one, and waits for them by yielding nothing. While parts run, a
    BLAS product stays on one core, also if there is one part only, so that no bit depends on how many
    there are.
    """
    if lane_count() == 1:
        return [run_alone(part) for part in parts]
    prepare_thread()
    results: dict[int, R] = {}
    coming = enumerate(parts)
    turns = deque((lane, *part) for lane, part in zip(_thread.lanes, coming, strict=False))
    with blas.one_core_a_product():
        while turns:
            lane, number, part = turns.popleft()
            with mx.stream(lane):
                try:
                    mx.async_eval(*next(part))
                    turns.append((lane, number, part))
                except StopIteration as end:
                    results[number] = end.value
                    turns.extend((lane, *following) for following in islice(coming, 1))
        mx.eval(list(results.values()))
    return [results[number] for number in range(len(results))]


def run_alone(part: Part[R]) -> R:
    """The result of a part that runs on the stream of whoever asks."""
    while True:
        try:
            next(part)
        except StopIteration as end:
            return end.value
