"""Templates of the dashboard: ids are shown as plain digits, so that they can be copied into a command."""

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
