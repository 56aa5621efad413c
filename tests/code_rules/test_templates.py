"""Pages: ids are plain digits, so that they can be copied into a command, and other numbers have one format."""

import re
from pathlib import Path

TEMPLATES = Path(__file__).parents[2] / "src" / "sereno" / "server" / "web" / "templates"


def test_ids_are_plain_digits() -> None:
    files = sorted(TEMPLATES.glob("*.html"))
    found = [
        f"{file.name}: {match[0]}"
        for file in files
        for match in re.finditer(r"\bid \| \w+|_id \| \w+", file.read_text())
    ]
    assert [each for each in found if each.endswith("figure")] == []
    assert len(files) > 20


def test_pages_have_one_format_of_numbers() -> None:
    """Only `numbers.figure` separates thousands, in the format of the user's language."""
    own = [path.name for path in TEMPLATES.parent.rglob("*.py") if re.search(r":,[.}]", path.read_text())]
    assert own == ["numbers.py"]
