"""The walks through the code in CONTRIBUTING.md name files that exist, each once."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_each_walk_names_existing_files_once() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    section = text.partition("## Three walks through the code")[2].partition("\n## ")[0]
    walks = re.split(r"^\*\*.*\*\*$", section, flags=re.MULTILINE)[1:]
    assert len(walks) == 3
    for walk in walks:
        named = re.findall(r"`([\w/]+\.(?:py|sql))`", walk)
        assert len(named) >= 7
        assert len(named) == len(set(named)), "a file is named twice"
        assert [name for name in named if not (ROOT / "src" / "sereno" / name).is_file()] == []
