"""A separate environment for every peer, created on first use from pinned versions."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from .catalogue import Peer
from .failure import PeerFailed, last_line

PROGRAMS = Path(__file__).parent
HOME = PROGRAMS.parents[1] / ".bench"
SECONDS_TO_INSTALL = 600
# Tried in this order when a peer needs a newer Python than the one that runs the benchmark.
NEWER_PYTHONS = ("python3.12", "python3.13", "python3.14")


def prepare(peer: Peer) -> list[str]:
    """Install the peer unless it is installed, and return the command that starts its program."""
    HOME.mkdir(exist_ok=True)
    (HOME / ".gitignore").write_text("*\n")
    if peer.language == "python":
        return _prepare_python(peer)
    return _prepare_node(peer)


def _prepare_python(peer: Peer) -> list[str]:
    requirements = peer.requirements
    place = HOME / peer.program
    python = place / "bin" / "python"
    if not _is_installed(place, requirements):
        shutil.rmtree(place, ignore_errors=True)
        _install([_python_for(peer), "-m", "venv", str(place)])
        _install([str(python), "-m", "pip", "install", "--quiet", "--requirement", str(requirements)])
        _mark_installed(place, requirements)
    return [str(python), str(PROGRAMS / f"{peer.program}_program.py")]


def _prepare_node(peer: Peer) -> list[str]:
    requirements = peer.requirements
    place = HOME / peer.program
    if not _is_installed(place, requirements):
        npm = shutil.which("npm")
        if npm is None:
            raise PeerFailed("npm is not installed")
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        shutil.copy(requirements, place / "package.json")
        _install([npm, "install", "--no-audit", "--no-fund", "--prefix", str(place)])
        _mark_installed(place, requirements)
    # Node searches packages next to the importing file, so the program has to be in the same directory.
    for name in ("harness.mjs", f"{peer.program}_program.mjs"):
        shutil.copy(PROGRAMS / name, place / name)
    return [_node_in(place), str(place / f"{peer.program}_program.mjs")]


def _node_in(place: Path) -> str:
    """Return the pinned Node if there is one for this machine, because the Node peers need a recent version."""
    node = shutil.which("node", path=str(place / "node_modules" / ".bin")) or shutil.which("node")
    if node is None:
        raise PeerFailed("node is not installed")
    return node


def _python_for(peer: Peer) -> str:
    """Return the Python that runs the benchmark, or a newer one if the peer requires it."""
    if sys.version_info >= peer.least_python:
        return sys.executable
    for name in (os.environ.get("BENCH_PYTHON", ""), *NEWER_PYTHONS):
        if name and _can_run(name):
            return name
    wanted = ".".join(map(str, peer.least_python))
    raise PeerFailed(f"it needs Python {wanted}; set BENCH_PYTHON to one")


def _can_run(python: str) -> bool:
    try:
        return subprocess.run([python, "--version"], capture_output=True, check=False, timeout=30).returncode == 0
    except (OSError, subprocess.SubprocessError):
        return False


def _install(command: list[str]) -> None:
    try:
        finished = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS_TO_INSTALL)
    except subprocess.TimeoutExpired:
        raise PeerFailed(f"installing took more than {SECONDS_TO_INSTALL} s") from None
    if finished.returncode != 0:
        raise PeerFailed(f"installing failed: {last_line(finished.stderr)}")


def _is_installed(place: Path, requirements: Path) -> bool:
    mark = place / "installed"
    return mark.exists() and mark.read_text() == requirements.read_text()


def _mark_installed(place: Path, requirements: Path) -> None:
    """Write the pins as the last step: an incomplete installation has no mark, and new pins differ from it."""
    (place / "installed").write_text(requirements.read_text())
