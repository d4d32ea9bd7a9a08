"""The account of a prompt closes only if every token is accounted for, by the plan and by every layer."""

import mlx.core as mx
import pytest

from engine.api import ReceiptPart
from engine.errors import ReceiptError
from engine.generation.prefill import PrefillPolicy
from engine.generation.receipt import draw_up, require_closed
from engine.planning.tuning import random_ids
from engine.state import RecurrentState, SequenceState
from tests.support.checkpoints import PLAIN, Shop

PARTS = (ReceiptPart("format", "Chat format", 5), ReceiptPart("user", "Message 1", 195))
PLAN = PrefillPolicy(64).plan(200)


@pytest.fixture
def state(shop: Shop) -> SequenceState:
    """A real state that has read 200 tokens."""
    model = shop.model(PLAIN)
    state = model.new_state()
    mx.eval(model(mx.array([random_ids(model, 200, seed=1)], mx.int32), state))
    return state


def test_it_closes_when_everything_was_read(state: SequenceState):
    receipt = draw_up(PARTS, PLAN, PLAN.slices, state)
    assert receipt.closed
    assert receipt.problem == ""
    assert receipt.read == receipt.prompt_tokens == 200
    assert [(layer.layer, layer.kind, layer.position) for layer in receipt.layers] == [
        (0, "KDA", 200),
        (1, "KDA", 200),
        (2, "KDA", 200),
        (3, "MLA", 200),
    ]
    require_closed(receipt)


def test_it_closes_over_a_reused_beginning(state: SequenceState):
    plan = PrefillPolicy(64).plan(200, 128)
    receipt = draw_up(PARTS, plan, plan.slices, state)
    assert receipt.closed
    assert receipt.read == 200
    assert receipt.plan.reused == 128


@pytest.mark.parametrize(
    ("executed", "said"),
    [
        ((), "0 of 200 tokens were read"),
        (PLAN.slices[:-1], "192 of 200 tokens were read"),
        (PLAN.slices[1:], "does not continue at 0"),
        ((PLAN.slices[0], *PLAN.slices[2:]), "does not continue at 64"),
        ((PLAN.slices[0], *PLAN.slices), "does not continue at 64"),
        ((*PLAN.slices, (200, 200)), "does not continue at 200"),
        ((*PLAN.slices, (200, 264)), "264 of 200 tokens were read"),
    ],
)
def test_it_stays_open_when_slices_are_missing_doubled_or_empty(
    state: SequenceState, executed: tuple[tuple[int, int], ...], said: str
):
    receipt = draw_up(PARTS, PLAN, executed, state)
    assert not receipt.closed
    assert said in receipt.problem
    with pytest.raises(ReceiptError, match="withheld"):
        require_closed(receipt)


@pytest.mark.parametrize("tokens", [194, 196, 0])
def test_it_stays_open_when_the_parts_are_not_the_prompt(state: SequenceState, tokens: int):
    parts = (PARTS[0], ReceiptPart("user", "Message 1", tokens))
    receipt = draw_up(parts, PLAN, PLAN.slices, state)
    assert not receipt.closed
    assert f"its parts have {tokens + 5} tokens, the prompt 200" in receipt.problem


@pytest.mark.parametrize("extra", [1, -1, -200])
def test_it_stays_open_when_one_layer_disagrees_and_names_it(state: SequenceState, extra: int):
    layer = state.layers[2]
    assert isinstance(layer, RecurrentState)
    layer.absorb(layer.window, layer.memory, extra)
    receipt = draw_up(PARTS, PLAN, PLAN.slices, state)
    assert not receipt.closed
    assert f"1 of 4 layers disagree; layer 2 (KDA) has absorbed {200 + extra} of 200" in receipt.problem
    with pytest.raises(ReceiptError, match="layer 2"):
        require_closed(receipt)


def test_it_stays_open_when_all_layers_agree_on_the_wrong_count(shop: Shop):
    model = shop.model(PLAIN)
    state = model.new_state()
    mx.eval(model(mx.array([random_ids(model, 64, seed=1)], mx.int32), state))
    receipt = draw_up(PARTS, PLAN, PLAN.slices, state)
    assert not receipt.closed
    assert "4 of 4 layers disagree" in receipt.problem
