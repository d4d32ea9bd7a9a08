"""`python -m app`: the window. `--tour`: a scripted run of its main job."""

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import QTimer

from app.application import Application
from app.brand import window_icon
from app.crash import CrashReporter
from app.placement import Placement
from app.resources import DEMO_MODEL
from app.services import Services
from app.tour import run_tour
from app.window import MainWindow


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="perigee-app", description="Ask about long documents, locally.")
    parser.add_argument("--model", type=Path, default=DEMO_MODEL, help="checkpoint folder to load")
    parser.add_argument(
        "--tour", action="store_true", help="run the main job by script and print what happens"
    )
    parser.add_argument("--picture", type=Path, metavar="FILE", help="where the tour saves its picture")
    parser.add_argument("files", type=Path, nargs="*", help="documents to attach")
    return parser.parse_args(arguments)


def _without_display() -> bool:
    named = any(os.environ.get(name) for name in ("QT_QPA_PLATFORM", "DISPLAY", "WAYLAND_DISPLAY"))
    return sys.platform == "linux" and not named


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the app; returns the exit status."""
    chosen = _arguments(arguments)
    if _without_display():
        if not chosen.tour:
            sys.stderr.write("There is no display. `python -m app --tour` runs the window without one.\n")
            return 1
        os.environ["QT_QPA_PLATFORM"] = "offscreen"
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C in the terminal ends the process at once
    application = Application(sys.argv[:1])
    application.setApplicationName("Perigee")
    application.setApplicationDisplayName("Perigee")
    application.setWindowIcon(window_icon())
    services = Services(application)
    CrashReporter(services.notices, services).install()
    window = MainWindow(services)
    if chosen.tour:
        window.show()
        return run_tour(window, services, chosen.model, chosen.picture)
    Placement(window, services)
    window.show()
    application.deliver_to(window.open_files)
    application.open_files([path.absolute() for path in chosen.files])

    def begin() -> None:
        services.bridge.start()
        services.model.load(chosen.model)

    QTimer.singleShot(0, begin)  # after the window is on the screen
    status = application.exec()
    services.close()
    return status


if __name__ == "__main__":
    sys.exit(main())
