"""Real tiny checkpoints and the demo model, loaded once for the whole session."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.checkpoint.loader import LoadedModel, load_model
from engine.models.kimi_linear import KimiLinear
from engine.text.chat_format import ChatFormat
from engine.text.tokenizer import Tokenizer
from tests.support.checkpoints import DEMO_MODEL, PLAIN, Recipe, Shop, change_config
from tests.support.families import EVERY_TEST_FAMILY, registered


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """Tiny checkpoints by recipe, and their models."""
    return Shop(tmp_path_factory.mktemp("checkpoints"))


@pytest.fixture(scope="session")
def demo() -> LoadedModel:
    """The embedded model."""
    return load_model(DEMO_MODEL)


@pytest.fixture(scope="session")
def demo_tokenizer() -> Tokenizer:
    return Tokenizer.load(DEMO_MODEL)


@pytest.fixture(scope="session")
def demo_format(demo_tokenizer: Tokenizer) -> ChatFormat:
    return ChatFormat.load(DEMO_MODEL, demo_tokenizer)


@pytest.fixture
def test_families() -> Iterator[None]:
    """The families of tests.support.families can be loaded while a test runs."""
    with registered(*EVERY_TEST_FAMILY):
        yield


FamilyLoader = Callable[..., LoadedModel]


@pytest.fixture
def load_as(shop: Shop, tmp_path: Path, test_families: None) -> FamilyLoader:
    """Loads a tiny checkpoint (or any folder) as one of the test families."""

    def load(kind: type[KimiLinear], source: Recipe | Path = PLAIN) -> LoadedModel:
        folder = tmp_path / kind.family
        shutil.copytree(shop.folder(source) if isinstance(source, Recipe) else source, folder)
        change_config(folder, model_type=kind.family)
        return load_model(folder)

    return load
