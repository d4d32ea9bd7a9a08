"""Without what it needs, the script says so in a sentence. Its times need a GPU."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import mlx.core as mx
import pytest


@pytest.mark.skipif(
    importlib.util.find_spec("torch") is not None or mx.default_device().type != mx.cpu,
    reason="everything that could be missing is here",
)
def test_what_is_missing_is_said_in_a_sentence(root: Path):
    script = root / "scripts" / "time_kda_core.py"
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert json.loads(done.stdout)["milliseconds"] == {"perigee": {}, "fla": {}}
    ours, theirs = done.stderr.splitlines()
    assert ours == "perigee: Our kernel runs on a GPU, and MLX sees none here."
    assert theirs.startswith("fla: The reference needs torch, triton and flash-linear-attention")
