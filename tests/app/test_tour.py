"""The scripted tour, in a process of its own as `make run` starts it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from app.sample import read_sample


def tour(*arguments: str) -> subprocess.CompletedProcess[str]:
    return app("--tour", *arguments)


def app(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The app on a machine without a display."""
    display = ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM")
    environment = {k: v for k, v in os.environ.items() if k not in display}
    command = [sys.executable, "-m", "app", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=280, check=False)


@pytest.mark.timeout(300)
def test_the_tour_does_the_main_job(root: Path):
    pictures = [root / "build" / name for name in ("tour.png", "tour-dark.png")]
    for picture in pictures:
        picture.unlink(missing_ok=True)
    done = tour()
    sample = read_sample()
    assert sample is not None
    assert done.returncode == 0, done.stderr
    assert sample.answer in done.stdout
    assert "Receipt closed" in done.stdout
    assert done.stdout.count("Reading: ") >= 2
    assert "Traceback" not in done.stderr
    for picture in pictures:
        assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there always is a display")
def test_without_a_display_the_app_says_so():
    done = app()
    assert done.returncode == 1
    assert "--tour" in done.stderr


def test_the_tour_says_why_it_failed(tmp_path: Path):
    done = tour("--model", str(tmp_path / "nowhere"))
    assert done.returncode == 1
    assert "The tour failed: " in done.stderr
    assert "nowhere" in done.stderr
