"""The sample that comes with the app: a document and a question about it."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from app.resources import SAMPLE


@dataclass(frozen=True, slots=True)
class Sample:
    """A document, a question, and the answer that is right."""

    document: Path
    question: str
    answer: str


def read_sample() -> Sample | None:
    """The sample, or None if it is not there."""
    description = SAMPLE / "sample.json"
    if not description.is_file():
        return None
    found = cast("dict[str, str]", json.loads(description.read_text(encoding="utf-8")))
    return Sample(SAMPLE / found["document"], found["question"], found["answer"])
