"""Documents for tests: pages of varied sentences about a harbour town, with facts planted in them."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

_WHO = (
    "The ferryman",
    "An old clerk of the customs house",
    "The keeper of the lower weir",
    "A woman from the salt works",
    "The younger of the two carpenters",
    "Nobody in the upper town",
    "The man who mends the nets",
    "Every second visitor",
    "The apprentice at the bakery",
    "One of the lamplighters",
)
_DID = (
    "walked along the quay",
    "counted the barrels twice",
    "waited under the arch by the fish market",
    "wrote a few lines about the weather",
    "carried the ladders back to the shed",
    "spoke of the winter when the river froze",
    "closed the shutters on the western side",
    "looked for the lost key among the ropes",
    "thought that the paint had come out too dark",
    "took the long way round by the orchard",
)
_WHEN = (
    "before the first bell",
    "while the tide was still falling",
    "on the evening of the fair",
    "after the rain had stopped",
    "as soon as the mist had lifted",
    "in the quiet hour after dinner",
    "when the geese came over from the marsh",
    "as the last cart turned into the lane",
)
_AND = (
    "and nothing more was said about it",
    "and the others followed at some distance",
    "though the stones were slippery with weed",
    "because the new bridge was not yet open",
    "which surprised the people at the window",
    "and the dog ran ahead as it always did",
    "so that supper had to wait",
    "although it would have been easier by boat",
)


@dataclass(frozen=True)
class Fact:
    """A sentence of a document, the question about it, and what the answer must hold."""

    sentence: str
    question: str
    answer: str


FACTS = (
    Fact(
        "The password for the greenhouse computer is blue-falcon-77.",
        "What is the password for the greenhouse computer?",
        "blue-falcon-77",
    ),
    Fact(
        "The rent for the boathouse is 482 crowns a month.",
        "How much is the rent for the boathouse?",
        "482 crowns",
    ),
    Fact(
        "The password for the archive computer is green-otter-31.",
        "What is the password for the archive computer?",
        "green-otter-31",
    ),
    Fact(
        "The rent for the windmill is 915 crowns a month.",
        "How much is the rent for the windmill?",
        "915 crowns",
    ),
    Fact(
        "The password for the harbour computer is red-heron-58.",
        "What is the password for the harbour computer?",
        "red-heron-58",
    ),
)


def _sentence(rng: random.Random) -> str:
    who, did, when, then = (rng.choice(words) for words in (_WHO, _DID, _WHEN, _AND))
    if rng.random() < 0.5:
        return f"{who} {did} {when}, {then}."
    return f"{when[0].upper()}{when[1:]}, {who[0].lower()}{who[1:]} {did}, {then}."


def document(tokens: int, facts: Mapping[float, Fact], count: Callable[[str], int], seed: int = 0) -> str:
    """Paragraphs of about `tokens` tokens in all, with each fact at its depth.

    Args:
        tokens: as `count` counts them.
        facts: by depth, 0 for the very first sentence and 1 for the very last.
        count: tokens of a text.
        seed: of the sentences between.
    """
    rng = random.Random(seed)
    missing = tokens - sum(count(fact.sentence) for fact in facts.values())
    sentences: list[str] = []
    while missing > 0:
        sentences.append(_sentence(rng))
        missing -= count(" " + sentences[-1])
    for depth, fact in sorted(facts.items()):
        sentences.insert(round(depth * len(sentences)), fact.sentence)
    paragraphs = [" ".join(sentences[i : i + 7]) for i in range(0, len(sentences), 7)]
    return "\n\n".join(paragraphs)
