"""Print the Debian packages of the system libraries that are missing, on one line; nothing if none.

Run by scripts/setup.sh on Linux; with `--nicer`, of what only makes the window look better. Each
library is opened, not looked up, so a copy from any source counts.
"""

import ctypes
import os
import platform
import sys
from pathlib import Path

# Library -> Debian package, found with ldd on a system that had nothing.
ALWAYS = {
    "libEGL.so.1": "libegl1",
    "libGL.so.1": "libgl1",
    "libxkbcommon.so.0": "libxkbcommon0",
    "libdbus-1.so.3": "libdbus-1-3",
    "libfontconfig.so.1": "libfontconfig1",
    "libgthread-2.0.so.0": "libglib2.0-0",
    # MLX links a reference BLAS on Linux; the engine opens this one first (80 times faster products).
    "libopenblas.so.0": "libopenblas0-pthread",
}
WITH_A_DISPLAY = {
    "libxcb-cursor.so.0": "libxcb-cursor0",
    "libxcb-icccm.so.4": "libxcb-icccm4",
    "libxcb-keysyms.so.1": "libxcb-keysyms1",
    "libxcb-shape.so.0": "libxcb-shape0",
    "libxkbcommon-x11.so.0": "libxkbcommon-x11-0",
}
RENAMED = {"libglib2.0-0": "libglib2.0-0t64"}  # since Debian 13 and Ubuntu 24.04


def loads(library: str) -> bool:
    """Whether the dynamic loader finds `library` and everything it needs."""
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def has_font(pattern: str) -> bool:
    """Whether a font file whose name matches `pattern` is installed where fontconfig looks."""
    folders = (Path("/usr/share/fonts"), Path("/usr/local/share/fonts"), Path.home() / ".local/share/fonts")
    return any(next(folder.rglob(f"{pattern}.[to]t[fc]"), None) for folder in folders)


def debian_release() -> int:
    """Debian's major version as a number, 0 on other systems."""
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return 0
    version = release.get("VERSION_ID", "").partition(".")[0]
    return int(version) if release.get("ID") in {"debian", "ubuntu"} and version.isdigit() else 0


def missing_packages() -> list[str]:
    """Debian packages that would bring the missing libraries, in a stable order."""
    wanted = dict(ALWAYS)
    if os.environ.get("DISPLAY"):
        wanted |= WITH_A_DISPLAY
    packages = [package for library, package in wanted.items() if not loads(library)]
    if not has_font("*"):
        packages.append("fonts-dejavu-core")
    return [RENAMED.get(package, package) if debian_release() >= 13 else package for package in packages]


def nicer_packages() -> list[str]:
    """Debian packages that nothing depends on: the typeface that the window asks for first on Linux."""
    return [] if has_font("Inter*") else ["fonts-inter"]


if __name__ == "__main__":
    print(*(nicer_packages() if "--nicer" in sys.argv else missing_packages()))
