"""The README names every variable that the program reads, and its figures are right."""

import re
from pathlib import Path

from reminders import settings

HOME = Path(settings.__file__).parent
README = (HOME / "README.md").read_text()
SOURCES = [path.read_text() for path in (*HOME.glob("*.py"), *HOME.glob("channels/*.py"))]
VARIABLE = re.compile(r"\b(?:NOTIFICATION|REMINDERS|APP)_[A-Z_]*[A-Z]\b")
ACCOUNT = re.compile(r'account\("(\w+)", ([^)]*)\)')
COUNTED = re.compile(r"(\d+) (?:lines|keep)[^`]*`wc -l ([^`]*)`")


def test_every_variable_is_named_and_every_named_one_is_read() -> None:
    text = "\n".join(SOURCES)
    read = {name for name in VARIABLE.findall(text) if f'"{name}"' in text}
    for provider, names in ACCOUNT.findall(text):
        read |= {f"REMINDERS_{provider}_{name.upper()}" for name in re.findall(r'"(\w+)"', names)}
    assert set(VARIABLE.findall(README)) == read


def test_the_figures_are_those_of_the_files() -> None:
    found = COUNTED.findall(README)
    assert len(found) == 2
    for stated, patterns in found:
        files = [file for pattern in patterns.split() for file in HOME.glob(pattern)]
        lines = sum(len(file.read_text().splitlines()) for file in files)
        assert abs(lines - int(stated)) <= lines * 0.05, f"{patterns}: {lines} lines"
