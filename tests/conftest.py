"""What every test stands on: no network, no display, no user's settings, no unexpected warning."""

import importlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# The engine package opens OpenBLAS, which only helps if it comes before any test imports MLX.
importlib.import_module("engine")

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
os.environ.pop("PERIGEE_PREFILL_CHUNK", None)

# Shared, busy machines make any deadline a coin toss. What lands must not depend on one either: there,
# the examples are the same each time, while everybody else explores.
settings.register_profile(
    "perigee", deadline=None, derandomize="CI" in os.environ, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("perigee")

ROOT = Path(__file__).resolve().parent.parent
OUR_LOGGERS = ("engine", "app")


@pytest.fixture(scope="session")
def root() -> Path:
    """The project's folder."""
    return ROOT


@pytest.fixture(scope="session")
def demo_model(root: Path) -> Path:
    """The embedded checkpoint."""
    return root / "resources" / "demo-model"


@pytest.fixture(autouse=True)
def private_user_folders(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings and data of a test go to a folder of its own, never to the person who runs the tests."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(home / name.lower()))


class ExpectedLogs(logging.Handler):
    """Collects records of WARNING and above; a test says which ones it expects by a piece of the message."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []
        self.expected: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(f"{record.name} {record.levelname}: {record.getMessage()}")

    def __call__(self, piece: str) -> None:
        """Expect at least one warning or error whose text contains `piece`."""
        self.expected.append(piece)

    def problems(self) -> list[str]:
        """Unexpected messages, then expectations that nothing met."""
        unexpected = [m for m in self.messages if not any(piece in m for piece in self.expected)]
        unmet = [piece for piece in self.expected if not any(piece in m for m in self.messages)]
        return [f"logged: {m}" for m in unexpected] + [f"never logged: {piece}" for piece in unmet]


@pytest.fixture(autouse=True)
def expect_log() -> Iterator[ExpectedLogs]:
    """Fails the test for every warning of ours that was not announced with `expect_log("piece of it")`."""
    handler = ExpectedLogs()
    for name in OUR_LOGGERS:
        logging.getLogger(name).addHandler(handler)
    yield handler
    for name in OUR_LOGGERS:
        logging.getLogger(name).removeHandler(handler)
    if problems := handler.problems():
        pytest.fail("\n".join(problems), pytrace=False)
