#!/bin/sh
# Makes .venv with everything Perigee needs, then looks after the system libraries.
#
# Idempotent: what is there already stays. Uses uv when it is installed, else venv and pip with
# whatever index the user's own pip configuration names. PYTHON=... chooses another interpreter.
set -eu
cd "$(dirname "$0")/.."

say() { printf '%s\n' "$*"; }
stop() { printf '%s\n' "$*" >&2; exit 1; }
is_root_with_apt() { [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; }

apt_updated=no
apt_install() {
    if [ "$apt_updated" = no ]; then
        DEBIAN_FRONTEND=noninteractive apt-get -qq update
        apt_updated=yes
    fi
    DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "$@" >/dev/null
}

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

find_python() {
    for candidate in ${PYTHON:-} python3 python3.13 python3.12 python3.11 python3.14 python; do
        if new_enough "$candidate"; then
            command -v "$candidate"
            return 0
        fi
    done
    return 1
}

# --- the virtual environment ---

make_venv_with_pip() {
    python=$(find_python) || stop "Perigee needs Python 3.11 or newer, and found none.
Install it (macOS: brew install python@3.12, Debian: apt-get install python3), or name one: make setup PYTHON=/path/to/python3"
    if ! "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then
        if is_root_with_apt; then
            say "Installing python3-venv, which Debian keeps apart from Python."
            apt_install python3-venv
        fi
        "$python" -c 'import ensurepip, venv' >/dev/null 2>&1 || stop "$python cannot make virtual environments.
On Debian and Ubuntu: sudo apt-get install python3-venv"
    fi
    say "Making .venv with $("$python" --version)."
    "$python" -m venv --clear .venv
}

install_with_uv() {
    say "Installing packages with uv."
    new_enough .venv/bin/python || uv venv --quiet --seed --python '>=3.11' --clear .venv || return 1
    uv pip install --quiet --python .venv/bin/python -e '.[dev]'
}

install_with_pip() {
    if ! new_enough .venv/bin/python || ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
        make_venv_with_pip
    fi
    say "Installing packages with pip: this takes a minute or two the first time."
    .venv/bin/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
}

stamp=.venv/.perigee-ready
if [ -s "$stamp" ] && [ "$(cat "$stamp")" != "$(pwd -P)" ]; then
    say "This folder has been moved or copied, so .venv is made anew."
    rm -rf .venv
fi

installed=no
if command -v uv >/dev/null 2>&1; then
    # uv does not read pip's configuration: where only pip knows the way to the packages, pip goes.
    if install_with_uv; then installed=yes; else say "uv did not succeed; trying pip."; fi
fi
if [ "$installed" = no ]; then
    install_with_pip || stop "The packages could not be installed; the reason stands above.
With a network connection and a working pip, run make setup again: it goes on where it stopped."
fi

# --- system libraries (Linux only: on macOS the wheels bring everything) ---

[ "$(uname)" = Linux ] || exit 0
missing=$(.venv/bin/python scripts/system_libraries.py)
if [ -n "$missing" ] && is_root_with_apt; then
    say "Installing system libraries: $missing"
    apt_install $missing || say "apt-get did not succeed; going on with what is there."
    missing=$(.venv/bin/python scripts/system_libraries.py)
fi
nicer=$(.venv/bin/python scripts/system_libraries.py --nicer)
if [ -n "$nicer" ] && is_root_with_apt; then
    say "Installing $nicer for a better looking window."
    apt_install $nicer || say "It is not to be had here, which is no obstacle."
fi
if [ -n "$missing" ]; then
    say "Some system libraries are missing. On Debian and Ubuntu this installs them:"
    say "    sudo apt-get install --no-install-recommends $missing"
    if ! QT_QPA_PLATFORM=offscreen .venv/bin/python -c 'from PySide6.QtWidgets import QApplication; QApplication([])' \
        >/dev/null 2>&1; then
        stop "Without them the window cannot open. Install them, then run make setup again."
    fi
    say "The window opens without them, so this is no obstacle; without libopenblas0-pthread reading is slow."
fi
