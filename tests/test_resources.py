"""Embedded model and sample document: complete, long enough, the fact where it is hardest to keep."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from tokenizers import Encoding, Tokenizer

# What an engine that loses everything but the last chunk would still have seen.
LAST_CHUNK_TOKENS = 2048


@dataclass(frozen=True)
class Sample:
    document: str
    question: str
    answer: str
    encoding: Encoding

    @property
    def tokens(self) -> int:
        return len(self.encoding.ids)

    def answer_tokens(self) -> tuple[int, int]:
        """First and last token of the answer in the document."""
        start = self.document.index(self.answer)
        first = self.encoding.char_to_token(start)
        last = self.encoding.char_to_token(start + len(self.answer) - 1)
        assert first is not None
        assert last is not None
        return first, last


@pytest.fixture(scope="module")
def sample(root: Path) -> Sample:
    folder = root / "resources" / "sample"
    declared = json.loads((folder / "sample.json").read_text(encoding="utf-8"))
    assert set(declared) == {"document", "question", "answer"}
    text = (folder / declared["document"]).read_text(encoding="utf-8")
    tokenizer = Tokenizer.from_file(str(root / "resources" / "demo-model" / "tokenizer.json"))
    encoding = tokenizer.encode(text, add_special_tokens=False)
    return Sample(text, declared["question"], declared["answer"], encoding)


def test_the_sample_document_needs_several_chunks_and_fits_the_demo_model(sample: Sample, root: Path):
    config = json.loads((root / "resources" / "demo-model" / "config.json").read_text(encoding="utf-8"))
    assert 8_600 <= sample.tokens <= 10_000 < config["model_max_length"]


def test_the_answer_stands_once_and_early(sample: Sample):
    assert sample.document.count(sample.answer) == 1
    first, last = sample.answer_tokens()
    assert 900 <= first < last <= 1500


def test_the_last_chunk_alone_cannot_answer(sample: Sample):
    _, last = sample.answer_tokens()
    assert last < sample.tokens - LAST_CHUNK_TOKENS
    kept_from, _ = sample.encoding.token_to_chars(sample.tokens - LAST_CHUNK_TOKENS) or (0, 0)
    assert sample.answer not in sample.document[kept_from:]
    number = sample.answer.split()[0]
    assert number not in sample.document.replace(sample.answer, "")


def test_the_document_is_plain_text_with_one_line_per_paragraph(sample: Sample):
    assert sample.document.isascii()
    assert all(line == line.strip() for line in sample.document.splitlines())
    paragraphs = [line for line in sample.document.splitlines() if line]
    assert len(paragraphs) == len(set(paragraphs))


def test_the_demo_model_folder_is_complete(root: Path):
    folder = root / "resources" / "demo-model"
    present = {path.name for path in folder.iterdir()}
    assert {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json"} <= present
    template = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))["chat_template"]
    assert "<|im_user|>" in template
