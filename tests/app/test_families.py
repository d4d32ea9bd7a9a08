"""Models that cannot be read in chunks, and models that lose what they read, seen from the window."""

import json
import shutil
from pathlib import Path

import pytest

from app.settings.pane import SettingsPane
from tests.app.driving import Driver
from tests.support.families import RebuildsState, WholePromptOnly, registered


@pytest.fixture
def posing_as(demo_model: Path, tmp_path: Path):
    """Makes a copy of the demo model that says it is of another family."""

    def pose(family: str) -> Path:
        folder = tmp_path / family
        shutil.copytree(demo_model, folder)
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        (folder / "config.json").write_text(json.dumps(config | {"model_type": family}), encoding="utf-8")
        return folder

    return pose


def test_a_model_that_opted_out_reads_in_one_pass_and_the_pane_says_why(
    bare: Driver, posing_as, tmp_path: Path
):
    with registered(WholePromptOnly):
        bare.load(posing_as("whole_prompt_only"))
        bare.chunk(64)
        bare.window.show_settings()
        pane = bare.window.findChild(SettingsPane)
        assert pane is not None
        bare.wait(lambda: bool(pane.prefill.plan.text()))
        assert "one pass" in pane.prefill.plan.text()
        assert WholePromptOnly.single_pass_reason in pane.prefill.plan.text()
        pane.close()

        turn = bare.ask_about_document(tmp_path)
        bare.finish(turn)
        assert turn.receipt is not None
        assert turn.receipt.closed
        assert turn.receipt.executed == ((0, turn.receipt.prompt_tokens),)
        footer = bare.view(turn).footer
        assert footer is not None
        assert "in one pass" in footer.line.text()


def test_a_model_that_loses_what_it_read_shows_no_word_of_an_answer(bare: Driver, posing_as, tmp_path: Path):
    with registered(RebuildsState):
        bare.load(posing_as("rebuilds_state"))
        bare.chunk(64)
        turn = bare.ask_about_document(tmp_path)
        bare.finish(turn)
        assert turn.state == "failed"
        assert turn.text == ""
        assert turn.error is not None
        assert turn.error.kind == "ledger"
        view = bare.view(turn)
        assert view.text is None
        assert view.footer is None
        assert view.outcome is not None
        assert view.outcome.sentence.text() == turn.error.message
        assert "Traceback" not in turn.error.message
