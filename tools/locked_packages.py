"""Print the part of requirements.txt, with hashes, that some extras of sereno need: the Dockerfile installs it.

    python tools/locked_packages.py server,channels hatchling

The words after the extras are further packages of the lock. It reads pyproject.toml and requirements.txt beside its own
directory, and needs no package itself.
"""

import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
_ENTRY = re.compile(r"^[a-z0-9].*\n(?:[ \t].*\n)*", re.MULTILINE)
_NAME = re.compile(r"[A-Za-z0-9._-]+")
# The packages that need one: "    # via aiohttp", or a line for each.
_NEEDED_BY = re.compile(r"^    #   (?:via )?([a-z0-9._-]+)", re.MULTILINE)
_OWN_EXTRAS = re.compile(r"sereno\[([\w,]+)\]")


def locked(extras: Iterable[str], packages: Iterable[str] = (), root: Path = ROOT) -> dict[str, str]:
    """Return the entries of the lock, by name: what sereno and these extras need, and these packages with theirs."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    text = (root / "requirements.txt").read_text().replace("    # via ", "    #   via ")
    entries: dict[str, str] = {}
    for entry in _ENTRY.findall(text):
        # A package has several entries where its version depends on the Python.
        entries[_name(entry)] = entries.get(_name(entry), "") + entry
    wanted = {_name(each) for each in _requirements(project, extras)} | set(packages)
    if unknown := sorted(wanted - entries.keys()):
        raise ValueError(f"requirements.txt does not have {', '.join(unknown)}: run make lock")
    while more := {name for name, entry in entries.items() if wanted & {*_NEEDED_BY.findall(entry)}} - wanted:
        wanted |= more
    return {name: entry for name, entry in entries.items() if name in wanted}


def _requirements(project: dict[str, Any], extras: Iterable[str]) -> Iterator[str]:
    yield from project["dependencies"]
    for extra in extras:
        for each in project["optional-dependencies"][extra]:
            if own := _OWN_EXTRAS.match(each):
                yield from _requirements(project, own[1].split(","))
            else:
                yield each


def _name(requirement: str) -> str:
    found = _NAME.match(requirement)
    assert found is not None
    return re.sub(r"[-_.]+", "-", found[0]).lower()


if __name__ == "__main__":
    print("".join(locked(sys.argv[1].split(","), sys.argv[2:]).values()), end="")
