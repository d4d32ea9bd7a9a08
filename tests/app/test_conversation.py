"""What a conversation holds and what of it the model is told, without a window."""

from dataclasses import replace

import pytest

from app.chat.conversation import Conversation, Turn
from app.documents.attachments import Attachment
from engine.api import Document, GenerationStats, Message, PrefillPlanInfo, Receipt

PLAN = PrefillPlanInfo(8, 0, ((0, 8),), "fits", "Single pass.", 2048)
CLOSED = Receipt(8, (), PLAN, ((0, 8),), (), closed=True)
OPEN = replace(CLOSED, executed=(), closed=False, problem="stopped")
STATS = GenerationStats(8, 3, 1, 8, 1, 3, 0)


def attached(name: str) -> Attachment:
    return Attachment(name, state="read", document=Document(name, f"text of {name}"))


def answered(question: str, answer: str, *names: str) -> Turn:
    attachments = tuple(attached(name) for name in names)
    return Turn(question, attachments, state="done", text=answer, receipt=CLOSED, stats=STATS)


def test_the_model_is_told_answered_turns_with_their_documents_in_order():
    conversation = Conversation(turns=[answered("one", "1", "a.txt", "b.txt"), answered("two", "2")])
    documents = (Document("a.txt", "text of a.txt"), Document("b.txt", "text of b.txt"))
    assert conversation.history() == (
        Message("user", "one", documents),
        Message("assistant", "1"),
        Message("user", "two"),
        Message("assistant", "2"),
    )


@pytest.mark.parametrize(
    "turn",
    [
        Turn("stopped while reading", state="stopped", receipt=OPEN),
        Turn("failed", state="failed"),
        Turn("failed after some words", state="failed", text="some words"),
        Turn("words under a receipt that is not closed", state="done", text="words", receipt=OPEN),
        Turn("nothing said", state="done", receipt=CLOSED),
        Turn("waiting"),
        Turn("being written", state="writing", text="so far", receipt=None),
    ],
    ids=lambda turn: turn.question,
)
def test_a_turn_without_an_answer_is_no_part_of_the_next_prompt(turn: Turn):
    conversation = Conversation(turns=[answered("one", "1"), turn])
    assert [message.text for message in conversation.history()] == ["one", "1"]
    assert turn.messages() == (Message("user", turn.question),)
    assert conversation.last_answered() is conversation.turns[0]


def test_an_answer_that_was_stopped_while_written_is_part_of_the_next_prompt():
    turn = Turn("cut", state="stopped", text="half an", receipt=CLOSED, stats=STATS)
    assert [message.text for message in Conversation(turns=[turn]).history()] == ["cut", "half an"]


def test_the_open_turn_is_the_one_that_is_not_over():
    waiting = Turn("waiting")
    conversation = Conversation(turns=[answered("one", "1"), waiting])
    assert conversation.open_turn is waiting
    waiting.state = "stopped"
    assert conversation.open_turn is None


def test_untouched_means_nothing_asked_typed_or_attached():
    assert Conversation().untouched
    assert Conversation(draft="  ").untouched
    assert not Conversation(draft="x").untouched
    assert not Conversation(attachments=[attached("a.txt")]).untouched
    assert not Conversation(turns=[Turn("x")]).untouched
