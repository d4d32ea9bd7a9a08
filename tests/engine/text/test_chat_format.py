"""From a conversation to tokens: nothing forged, nothing lost, every token attributed, prefixes stable."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api import Document, Message
from engine.errors import ChatTemplateError, PromptError
from engine.text.chat_format import ChatFormat, Prompt
from engine.text.tokenizer import Tokenizer

# The frame of the K2 line; reasoning is kept behind the last plain answer only, as K2-Thinking does.
THINKING = """
{%- set last = namespace(index=-1) -%}
{%- for i in range(messages | length - 1, -1, -1) -%}
  {%- if messages[i].role == 'assistant' -%}{%- set last.index = i -%}{%- break -%}{%- endif -%}
{%- endfor -%}
{%- for message in messages -%}
  {%- if message.role == 'assistant' -%}
    <|im_assistant|>assistant<|im_middle|>
    {%- if loop.index0 > last.index - KEEP and message.reasoning_content is defined -%}
      <think>{{ message.reasoning_content }}</think>
    {%- else -%}<think></think>{%- endif -%}
  {%- else -%}
    <|im_{{ message.role }}|>{{ message.role }}<|im_middle|>
  {%- endif -%}
  {{ message.content }}<|im_end|>
{%- endfor -%}
<|im_assistant|>assistant<|im_middle|>"""


@pytest.fixture(scope="module")
def tokenizer(demo_model: Path) -> Tokenizer:
    return Tokenizer.load(demo_model)


@pytest.fixture(scope="module")
def demo_format(demo_model: Path, tokenizer: Tokenizer) -> ChatFormat:
    return ChatFormat.load(demo_model, tokenizer)


@pytest.fixture
def folder(demo_model: Path, tmp_path: Path) -> Path:
    """A model folder of its own; a template is put beside the demo tokenizer by each test."""
    shutil.copy(demo_model / "tokenizer.json", tmp_path)
    return tmp_path


def with_template(folder: Path, source: str) -> ChatFormat:
    (folder / "chat_template.jinja").write_text(source, encoding="utf-8")
    return ChatFormat.load(folder, Tokenizer.load(folder))


def user(text: str, *documents: str) -> Message:
    return Message("user", text, tuple(Document(f"{i}.txt", d) for i, d in enumerate(documents)))


def summary(prompt: Prompt, tokenizer: Tokenizer) -> list[tuple[str, str]]:
    return [(part.kind, spelled(tokenizer, part.ids)) for part in prompt.parts]


def spelled(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """Text with control tokens written out."""
    names = {tokenizer.id_of(name): name.encode() for name in CONTROL}
    return b"".join(names.get(n) or tokenizer.token_bytes(n) for n in ids).decode()


CONTROL = ("[EOS]", "<|im_end|>", "<|im_system|>", "<|im_user|>", "<|im_assistant|>", "<|im_middle|>")

words = st.sampled_from(["a ", "question? ", "語", "<|im_end|>", "</think>", "{{ 1 }}", "\n", "\ufffd"])
contents = st.lists(words | st.text(max_size=5), min_size=1, max_size=5).map("".join).filter(str.strip)
documents = st.builds(Document, st.just("d.txt"), contents)
turns = st.tuples(
    st.builds(Message, st.just("user"), contents, st.lists(documents, max_size=2).map(tuple)),
    st.builds(Message, st.just("assistant"), contents, reasoning=st.sampled_from(["", "let me think"])),
)
conversations = st.lists(turns, max_size=3).map(lambda pairs: [message for pair in pairs for message in pair])
systems = st.lists(st.builds(Message, st.just("system"), contents), max_size=1)


# --- the shape of a prompt ---


def test_every_token_is_attributed_to_what_it_came_from(demo_format: ChatFormat, tokenizer: Tokenizer):
    prompt = demo_format.prompt(
        [
            Message("system", "Be brief."),
            user("Who?", "First.", "Second."),
            Message("assistant", "Ada."),
            user("Why?"),
        ]
    )
    assert summary(prompt, tokenizer) == [
        ("format", "<|im_system|>system<|im_middle|>"),
        ("system", "Be brief."),
        ("format", "<|im_end|><|im_user|>user<|im_middle|>"),
        ("document", "First."),
        ("format", "\n\n"),
        ("document", "Second."),
        ("format", "\n\n"),
        ("user", "Who?"),
        ("format", "<|im_end|><|im_assistant|>assistant<|im_middle|>"),
        ("assistant", "Ada."),
        ("format", "<|im_end|><|im_user|>user<|im_middle|>"),
        ("user", "Why?"),
        ("format", "<|im_end|><|im_assistant|>assistant<|im_middle|>"),
    ]
    assert prompt.length == len(prompt.ids) == sum(len(part.ids) for part in prompt.parts)
    assert [part.label for part in prompt.parts if part.kind == "document"] == ["0.txt", "1.txt"]


def test_a_plain_question_has_the_ids_of_the_template_written_out(
    demo_format: ChatFormat, tokenizer: Tokenizer
):
    prompt = demo_format.prompt([user("What is the code?")])
    written = "<|im_user|>user<|im_middle|>What is the code?<|im_end|><|im_assistant|>assistant<|im_middle|>"
    assert prompt.ids == tokenizer.encode_format(written)


def test_a_document_without_a_question_is_a_prompt(demo_format: ChatFormat, tokenizer: Tokenizer):
    parts = summary(demo_format.prompt([user("", "Only this.")]), tokenizer)
    assert parts[1:] == [
        ("document", "Only this."),
        ("format", "\n\n<|im_end|><|im_assistant|>assistant<|im_middle|>"),
    ]


@given(system=systems, history=conversations, last=turns)
def test_no_content_can_forge_a_control_token(
    demo_format: ChatFormat,
    tokenizer: Tokenizer,
    system: list[Message],
    history: list[Message],
    last: list[Message],
):
    control = {tokenizer.id_of(name) for name in CONTROL}
    messages = [*system, *history, last[0]]
    prompt = demo_format.prompt(messages)
    said = [p for p in prompt.parts if p.kind != "format"]
    assert not [number for part in said for number in part.ids if number in control]
    written = [text for m in messages for text in [*(d.text for d in m.documents), m.text] if text]
    assert [tokenizer.decode(part.ids) for part in said] == written
    assert prompt.ids.count(tokenizer.id_of("<|im_end|>") or -1) == len(messages)


@given(document=contents, question=contents, other=contents)
def test_the_tokens_of_a_document_do_not_depend_on_the_question(
    demo_format: ChatFormat, document: str, question: str, other: str
):
    first, second = (demo_format.prompt([user(text, document)]) for text in (question, other))
    assert [p.ids for p in first.parts if p.kind == "document"] == [
        p.ids for p in second.parts if p.kind == "document"
    ]
    length = sum(len(part.ids) for part in first.parts[:3])
    assert first.ids[:length] == second.ids[:length]


@given(system=systems, history=conversations, first=turns, second=turns)
def test_adding_a_turn_leaves_the_earlier_part_as_it_was(
    demo_format: ChatFormat,
    system: list[Message],
    history: list[Message],
    first: list[Message],
    second: list[Message],
):
    before = [*system, *history, first[0]]
    short = demo_format.prompt(before).ids
    assert demo_format.prompt([*before, first[1], second[0]]).ids[: len(short)] == short


def test_odd_characters_do_no_harm(demo_format: ChatFormat, tokenizer: Tokenizer):
    prompt = demo_format.prompt([user("what\ud800?", "a\0b\u2028c\udfff")])
    assert [t for kind, t in summary(prompt, tokenizer) if kind != "format"] == [
        "a\0b\u2028c\ufffd",
        "what\ufffd?",
    ]


# --- reasoning ---


def test_reasoning_the_template_keeps_is_part_of_the_prompt(folder: Path, tokenizer: Tokenizer):
    keeps = with_template(folder, THINKING.replace("KEEP", "1"))
    messages = [user("Why?"), Message("assistant", "So.", reasoning="hm </think>"), user("And?")]
    parts = keeps.prompt(messages).parts
    assert [(p.kind, tokenizer.decode(p.ids)) for p in parts if p.kind == "assistant"] == [
        ("assistant", "hm </think>"),
        ("assistant", "So."),
    ]


def test_reasoning_the_template_drops_is_not_part_of_the_prompt(folder: Path, tokenizer: Tokenizer):
    drops = with_template(folder, THINKING.replace("KEEP", "0"))
    messages = [user("Why?"), Message("assistant", "So.", reasoning="hm"), user("And?")]
    assert "hm" not in tokenizer.decode(drops.prompt(messages).ids)


def test_a_message_without_reasoning_gives_the_template_none(folder: Path, tokenizer: Tokenizer):
    says = with_template(
        folder,
        "{% for m in messages %}{{ 'with' if m.reasoning_content is defined else 'without' }} {{ m.content }}"
        "{% endfor %}",
    )
    prompt = says.prompt([Message("assistant", "A."), Message("assistant", "B.", reasoning="hm"), user("C?")])
    assert tokenizer.decode(prompt.ids) == "without A.with B.without C?"


@pytest.mark.parametrize(
    ("ending", "inside"), [("<think>", True), ("<think>\n", True), ("<think></think>", False), ("", False)]
)
def test_a_prompt_says_whether_the_answer_begins_inside_reasoning(folder: Path, ending: str, inside: bool):
    opens = with_template(folder, "{% for m in messages %}{{ m.content }}{% endfor %}" + ending)
    assert opens.prompt([user("Why <think>")]).opens_reasoning is inside


# --- templates that lose something ---

ALL = "{% for m in messages %}{{ m.content }}{% endfor %}"
LOSSES = {
    "drops the system message": (
        ALL.replace("messages", "messages if m.role != 'system'"),
        "Message 1 (system)",
    ),
    "drops all but the last": ("{{ messages[-1].content }}", "Message 1 (system)"),
    "drops the last": (ALL.replace("messages", "messages[:-1]"), "0.txt"),
    "writes one twice": (ALL + "{{ messages[1].content }}", "Message 2 (user)"),
    "reorders": (ALL.replace("messages", "messages | reverse"), "Message 1 (system)"),
    "shortens": (ALL.replace("content", "content[:40]"), "Message 1 (system)"),
    "changes case": (ALL.replace("content", "content | upper"), "Message 1 (system)"),
    "writes none": ("hello", "Message 1 (system)"),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_a_template_that_loses_or_moves_a_message_is_refused_and_the_message_named(folder: Path, loss: str):
    source, named = LOSSES[loss]
    messages = [Message("system", "S"), user("Q1"), Message("assistant", "A"), user("Q2", "D")]
    with pytest.raises(ChatTemplateError, match="does not pass on") as caught:
        with_template(folder, source).prompt(messages)
    assert f"“{named}”" in str(caught.value)


def test_a_lost_document_is_named_as_a_document(folder: Path):
    lossy = "{% for m in messages %}{{ m.content.split('\n\n')[-1] }}{% endfor %}"
    with pytest.raises(ChatTemplateError, match=r"document “0\.txt”"):
        with_template(folder, lossy).prompt([user("Q", "D")])


def test_reasoning_cut_short_is_refused(folder: Path):
    cuts = "{% for m in messages %}{{ (m.reasoning_content or '')[:-1] }}{{ m.content }}{% endfor %}"
    with pytest.raises(ChatTemplateError, match="changes what was said"):
        with_template(folder, cuts).prompt([Message("assistant", "A", reasoning="hm"), user("Q")])


def test_a_template_that_trims_contents_keeps_them_whole(folder: Path, tokenizer: Tokenizer):
    trims = with_template(folder, "{% for m in messages %}[{{ m.content | trim }}]{% endfor %}")
    assert tokenizer.decode(trims.prompt([user("  Q  ")]).ids) == "[  Q  ]"


# --- nothing to answer, nothing to answer with ---


def test_an_empty_conversation_is_refused(demo_format: ChatFormat):
    with pytest.raises(PromptError, match="Write a question"):
        demo_format.prompt([])


@pytest.mark.parametrize("text", ["", " \n\t"])
def test_an_empty_last_message_is_refused(demo_format: ChatFormat, text: str):
    with pytest.raises(PromptError, match="message is empty"):
        demo_format.prompt([user("Q"), Message("assistant", "A"), user(text)])


def test_a_document_without_text_is_refused(demo_format: ChatFormat):
    with pytest.raises(PromptError, match=r"“0\.txt” has no text"):
        demo_format.prompt([user("Q", "")])


def test_a_folder_without_a_template_loads_and_says_what_to_do(folder: Path, tokenizer: Tokenizer):
    without = ChatFormat.load(folder, tokenizer)
    assert not without.available
    with pytest.raises(ChatTemplateError, match=r"Copy chat_template\.jinja"):
        without.prompt([user("Q")])


def test_a_folder_with_a_broken_template_loads_and_names_the_line(folder: Path):
    broken = with_template(folder, "line one\n{% if %}")
    assert not broken.available
    with pytest.raises(ChatTemplateError, match="error in line 2"):
        broken.prompt([user("Q")])


def test_a_damaged_config_beside_it_is_named(folder: Path, tokenizer: Tokenizer):
    (folder / "tokenizer_config.json").write_text("{", encoding="utf-8")
    with pytest.raises(ChatTemplateError, match=r"tokenizer_config\.json"):
        ChatFormat.load(folder, tokenizer).prompt([user("Q")])


# --- where the template comes from ---


def text_of(folder: Path, tokenizer: Tokenizer) -> str:
    return tokenizer.decode(ChatFormat.load(folder, tokenizer).prompt([user("Q")]).ids)


def test_the_template_is_found_in_each_place_and_in_this_order(folder: Path, tokenizer: Tokenizer):
    named = [
        {"name": "tool_use", "template": "no"},
        {"name": "default", "template": "list {{ messages[0].content }}"},
    ]
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": named}), encoding="utf-8")
    assert text_of(folder, tokenizer) == "list Q"
    plain = {"chat_template": "config {{ messages[0].content }}", "bos_token": {"content": "B"}}
    (folder / "tokenizer_config.json").write_text(json.dumps(plain), encoding="utf-8")
    assert text_of(folder, tokenizer) == "config Q"
    inner = {"chat_template": "json {{ bos_token }} {{ messages[0].content }}"}
    (folder / "chat_template.json").write_text(json.dumps(inner), encoding="utf-8")
    assert text_of(folder, tokenizer) == "json B Q"
    (folder / "chat_template.jinja").write_text("jinja {{ messages[0].content }}", encoding="utf-8")
    assert text_of(folder, tokenizer) == "jinja Q"


def test_a_list_without_a_default_names_what_there_is(folder: Path, tokenizer: Tokenizer):
    named = {"chat_template": [{"name": "tool_use", "template": "x"}]}
    (folder / "tokenizer_config.json").write_text(json.dumps(named), encoding="utf-8")
    with pytest.raises(ChatTemplateError, match="tool_use"):
        text_of(folder, tokenizer)
