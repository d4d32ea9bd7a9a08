"""Where the files that come with the app are."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESOURCES = ROOT / "resources"
ICONS = RESOURCES / "icons"
DEMO_MODEL = RESOURCES / "demo-model"
SAMPLE = RESOURCES / "sample"
