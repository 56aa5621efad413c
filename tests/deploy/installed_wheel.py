"""The wheel, built from the files that the Dockerfile copies, in an environment with the packages of one extra only."""

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from tests.deploy.dockerfile import BUILD, copied
from tools.locked_packages import locked


def build(directory: Path) -> Path:
    """Build the wheel as the first stage of the Dockerfile does, and return its path."""
    source = directory / "build"
    for original, target in copied(BUILD):
        place = source / target
        place.parent.mkdir(parents=True, exist_ok=True)
        if original.is_dir():
            shutil.copytree(original, place, ignore=shutil.ignore_patterns("__pycache__", ".sereno"))
        else:
            shutil.copyfile(original, place)
    # The passwords of a machine where an example is deployed, which the wheel must not have.
    (source / "examples" / "tenders" / "deploy" / ".env").write_text("DATABASE_PASSWORD=secret\n")
    run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)], source)
    (wheel,) = directory.glob("*.whl")
    return wheel


def install(wheel: Path, directory: Path, extra: str) -> Path:
    """Create an environment with the wheel and what the extra needs, without a network; return its Python."""
    venv.create(directory, symlinks=True)
    (packages,) = directory.glob("lib/*/site-packages")
    for name in locked([extra]):
        for file in _files(name):
            place = (directory / "bin" if file.parent.name == "bin" else packages) / file.name
            if not place.exists():
                place.symlink_to(file)
    python = directory / "bin" / "python"
    own = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check"]
    run([*own, "install", "-q", "--no-index", "--no-deps", "--no-compile", str(wheel)], directory)
    return python


def _files(name: str) -> Iterator[Path]:
    """Yield the files and directories of an installed package in its site-packages; none of one for other platforms.

    And its programs, but for scripts, which name the Python of their own environment.
    """
    try:
        found = distribution(name)
    except PackageNotFoundError:
        return
    for path in (each for each in found.files or () if each.parts[0] == ".."):
        file = Path(str(found.locate_file(path))).resolve()
        if file.parent.name == "bin" and file.read_bytes()[:2] != b"#!":
            yield file
    for top in {path.parts[0] for path in found.files or ()} - {"..", "__pycache__"}:
        yield Path(str(found.locate_file(top)))


def run(command: list[str], directory: Path, **environment: str) -> str:
    """Run a program to its end, and return what it prints; it knows nothing of the checkout."""
    kept = {
        name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR", "SERENO_TEST_POSTGRES_BIN") if name in os.environ
    }
    done = subprocess.run(
        command,
        cwd=directory,
        env={**kept, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout
