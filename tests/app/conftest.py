"""Fixtures of the window's tests: the real window, the real engine, the real demo model."""

import gc
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import shiboken6
from PySide6.QtCore import QEvent, QThread, QTimer
from PySide6.QtWidgets import QApplication

from app.application import Application
from app.services import Services
from app.window import MainWindow
from tests.app.driving import Driver


@pytest.fixture(scope="session")
def qapp_cls() -> type[Application]:
    """The application object of the app itself."""
    return Application


@pytest.fixture(autouse=True)
def config_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Settings of a test stay in a folder of its own."""
    folder = tmp_path / "config"
    monkeypatch.setenv("PERIGEE_CONFIG_DIR", str(folder))
    return folder


def leftovers() -> list[str]:
    """What a closed window must not leave behind."""
    QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete.value)
    QApplication.processEvents()
    found = [f"top-level widget {w!r}" for w in QApplication.topLevelWidgets() if w.isVisible()]
    for thing in gc.get_objects():
        if isinstance(thing, QTimer | QThread) and shiboken6.isValid(thing):
            if isinstance(thing, QTimer) and thing.isActive():
                found.append(f"active timer of {thing.parent()!r}")
            elif isinstance(thing, QThread) and thing.isRunning() and thing is not QThread.currentThread():
                found.append(f"running thread {thing!r}")
    return found


@pytest.fixture(autouse=True)
def nothing_left_behind(qapp: QApplication) -> Iterator[None]:
    """Fails a test that leaves a window, a running timer or a thread of the engine."""
    yield
    threads = [t.name for t in threading.enumerate() if t.name.startswith("perigee")]
    assert leftovers() + threads == []


@pytest.fixture
def closed_driver(qapp: QApplication, qtbot) -> Iterator[Driver]:
    """The window as it is just before the engine is started."""
    services = Services(qapp)
    window = MainWindow(services)
    window.show()
    driver = Driver(window, services, qtbot)
    yield driver
    window.close()
    services.close()
    for thread in threading.enumerate():  # a busy machine may need longer than closing waits
        if thread.name.startswith("perigee"):
            thread.join(30)
    window.deleteLater()
    services.deleteLater()
    QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete.value)


@pytest.fixture
def bare(closed_driver: Driver) -> Driver:
    """The window with a running engine and no model."""
    closed_driver.services.bridge.start()
    return closed_driver


@pytest.fixture
def driver(bare: Driver, demo_model: Path) -> Driver:
    """The window with the demo model loaded."""
    bare.load(demo_model)
    return bare
