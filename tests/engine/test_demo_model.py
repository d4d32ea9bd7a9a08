"""The demo model answers from the whole document, at every depth, and cannot from the last chunk alone.

One document of each length holds five facts at five depths. In chunks it is read once and asked five
times, each time from the snapshot of what was read. In one pass it is read anew for every question; only
the longest is read once and asked five times.
"""

from dataclasses import dataclass

import mlx.core as mx
import pytest

from engine.api import Document, Message
from engine.checkpoint.loader import LoadedModel
from engine.generation.generator import Generator, Options, Outcome
from engine.generation.prefill import PrefillPolicy
from engine.scalars import as_int
from engine.state import SequenceState
from engine.text.chat_format import ChatFormat, Prompt
from engine.text.tokenizer import Tokenizer
from tests.support.listening import Recorder
from tests.support.prose import FACTS, Fact, document

CHUNK = 512
DEPTHS = dict(zip((0.0, 0.25, 0.5, 0.75, 1.0), FACTS, strict=True))
SHORT, MIDDLE, LONG = 560, 1600, 8000
LONGEST_ANSWER = 32


@dataclass
class Library:
    """Documents by length, and answers about them."""

    loaded: LoadedModel
    tokenizer: Tokenizer
    chat_format: ChatFormat

    def __post_init__(self) -> None:
        self._texts: dict[int, str] = {}
        self._readers: dict[int, Generator] = {}

    def prompt(self, tokens: int, fact: Fact) -> Prompt:
        if tokens not in self._texts:
            self._texts[tokens] = document(tokens, DEPTHS, self.tokenizer.count)
        pages = Document("pages.txt", self._texts[tokens])
        return self.chat_format.prompt((Message("user", fact.question, (pages,)),))

    def in_chunks(self, tokens: int, fact: Fact) -> Outcome:
        if tokens not in self._readers:
            self._readers[tokens] = Generator(self.loaded.model, self.tokenizer)
        return self._answer(self._readers[tokens], tokens, fact, CHUNK)

    def in_one_pass(self, tokens: int, fact: Fact) -> Outcome:
        return self._answer(Generator(self.loaded.model, self.tokenizer), tokens, fact, 0)

    def _answer(self, generator: Generator, tokens: int, fact: Fact, chunk: int) -> Outcome:
        options = Options(max_tokens=LONGEST_ANSWER)
        return generator.generate(self.prompt(tokens, fact), PrefillPolicy(chunk), options, Recorder())


@pytest.fixture(scope="module")
def library(demo: LoadedModel, demo_tokenizer: Tokenizer, demo_format: ChatFormat) -> Library:
    return Library(demo, demo_tokenizer, demo_format)


def at(depth: float) -> Fact:
    return DEPTHS[depth]


def write(demo: LoadedModel, tokenizer: Tokenizer, logits: mx.array, state: SequenceState) -> str:
    """The bare model's greedy answer from where `state` stands."""
    written: list[int] = []
    while len(written) < LONGEST_ANSWER and (token := as_int(mx.argmax(logits))) not in tokenizer.stop_ids:
        written.append(token)
        logits = demo.model(mx.array([[token]], mx.int32), state)
    return tokenizer.decode(written)


def read(demo: LoadedModel, ids: list[int], state: SequenceState) -> mx.array:
    logits = demo.model(mx.array([ids], mx.int32), state)
    mx.eval(logits)
    state.evaluate()
    return logits


@pytest.mark.parametrize("tokens", [SHORT, MIDDLE, LONG])
@pytest.mark.parametrize("depth", DEPTHS)
def test_a_fact_at_any_depth_is_answered_from_chunks(library: Library, tokens: int, depth: float):
    outcome = library.in_chunks(tokens, at(depth))
    assert at(depth).answer in outcome.text
    assert outcome.receipt.closed
    assert abs(outcome.receipt.prompt_tokens - tokens) < 0.1 * tokens


@pytest.mark.parametrize("tokens", [SHORT, MIDDLE])
@pytest.mark.parametrize("depth", DEPTHS)
def test_one_pass_writes_the_very_same_text(library: Library, tokens: int, depth: float):
    single = library.in_one_pass(tokens, at(depth))
    assert len(single.receipt.executed) == 1
    assert single.text == library.in_chunks(tokens, at(depth)).text


def test_the_longest_document_read_in_one_pass_gives_the_very_same_texts(
    library: Library, demo: LoadedModel, demo_tokenizer: Tokenizer
):
    prompts = {depth: library.prompt(LONG, fact) for depth, fact in DEPTHS.items()}
    before_question = [part.kind for part in prompts[0.0].parts].index("document") + 1
    pages = sum(len(part.ids) for part in prompts[0.0].parts[:before_question])
    state = demo.model.new_state()
    read(demo, prompts[0.0].ids[:pages], state)
    snapshot = state.snapshot()
    for depth, prompt in prompts.items():
        state.restore(snapshot)
        logits = read(demo, prompt.ids[pages:], state)
        said = write(demo, demo_tokenizer, logits, state)
        assert said == library.in_chunks(LONG, at(depth)).text
        assert at(depth).answer in said


@pytest.mark.parametrize("tokens", [SHORT, MIDDLE, LONG])
@pytest.mark.parametrize("depth", [0.0, 0.25])
def test_with_only_the_last_chunk_kept_the_answer_is_lost(
    library: Library, demo: LoadedModel, demo_tokenizer: Tokenizer, tokens: int, depth: float
):
    """What the tests above would see if every chunk began from nothing."""
    ids = library.prompt(tokens, at(depth)).ids
    last = (len(ids) - 1) // CHUNK * CHUNK
    assert last > 0
    state = demo.model.new_state()
    said = write(demo, demo_tokenizer, read(demo, ids[last:], state), state)
    assert said
    assert at(depth).answer not in said


@pytest.mark.parametrize("carried", [True, False])
def test_the_same_cuts_give_the_answer_only_if_the_state_is_carried(
    library: Library, demo: LoadedModel, demo_tokenizer: Tokenizer, carried: bool
):
    ids = library.prompt(MIDDLE, at(0.0)).ids
    state, logits = demo.model.new_state(), mx.zeros((1, 1))
    for start in range(0, len(ids), CHUNK):
        if not carried:
            state = demo.model.new_state()
        logits = read(demo, ids[start : start + CHUNK], state)
    assert (at(0.0).answer in write(demo, demo_tokenizer, logits, state)) == carried


def test_the_embedded_model_is_what_its_readme_says(demo: LoadedModel):
    assert demo.model.family == "kimi_linear"
    assert round(demo.parameters / 1e6, 2) == 11.10
    assert demo.quantization == "8-bit"
    assert demo.model.context_window == 32768
    assert demo.model.describe_layers() == ("KDA", "KDA", "KDA", "MLA") * 2
