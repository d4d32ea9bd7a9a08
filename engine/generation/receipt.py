"""The account of a prompt: it must close, or the answer is withheld."""

from collections.abc import Sequence

from engine.api import LayerPosition, Receipt, ReceiptPart
from engine.errors import ReceiptError
from engine.generation.prefill import PrefillPlan
from engine.state import SequenceState


def draw_up(
    parts: Sequence[ReceiptPart],
    plan: PrefillPlan,
    executed: Sequence[tuple[int, int]],
    state: SequenceState,
) -> Receipt:
    """The receipt of a reading, open or closed; `problem` says what does not add up.

    Args:
        parts: the prompt's parts with their tokens.
        plan: what was to be read.
        executed: the slices that were run, (start, end).
        state: the state after them; each layer is asked for its own count.
    """
    layers = tuple(LayerPosition(i, s.kind, s.position) for i, s in enumerate(state.layers))
    problem = _find_problem(parts, plan, executed, layers)
    return Receipt(
        plan.tokens, tuple(parts), plan.info(), tuple(executed), layers, closed=not problem, problem=problem
    )


def require_closed(receipt: Receipt) -> None:
    """Raise `ReceiptError` unless the account closes."""
    if not receipt.closed:
        raise ReceiptError(
            f"The answer was withheld because the account of the prompt does not close: {receipt.problem} "
            "Please report this; asking again is safe."
        )


def _find_problem(
    parts: Sequence[ReceiptPart],
    plan: PrefillPlan,
    executed: Sequence[tuple[int, int]],
    layers: Sequence[LayerPosition],
) -> str:
    total = sum(part.tokens for part in parts)
    if total != plan.tokens:
        return f"its parts have {total:,} tokens, the prompt {plan.tokens:,}."
    position = plan.reused
    for start, end in executed:
        if start != position or end <= start:
            return f"the slice {start:,} to {end:,} does not continue at {position:,}."
        position = end
    if position != plan.tokens:
        return f"{position:,} of {plan.tokens:,} tokens were read."
    wrong = [layer for layer in layers if layer.position != plan.tokens]
    if wrong:
        first = wrong[0]
        return (
            f"{len(wrong)} of {len(layers)} layers disagree; layer {first.layer} ({first.kind}) has "
            f"absorbed {first.position:,} of {plan.tokens:,} tokens."
        )
    return ""
