"""The documentation as a reader copies it: blocks of code, with what the comment above each says to do with it.

<!-- run -->            a complete program (or SQL) that is run
<!-- run: first.py -->  the same, under this name
<!-- pytest: test.py --> tests that are run, and pass
<!-- file: shop.py -->  written beside the programs of the page, for them to import
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

_BLOCK = re.compile(
    r"(?:<!-- (?P<verb>run|pytest|file)(?:: (?P<name>[\w.]+))? -->\n)?"
    r"^```(?P<language>\w+)\n(?P<code>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: Path
    line: int
    language: str
    code: str
    verb: str | None
    name: str | None

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text()
    for match in _BLOCK.finditer(text):
        line = text.count("\n", 0, match.start("code")) + 1
        yield Block(page, line, match["language"], match["code"], match["verb"], match["name"])


def links(page: Path) -> list[str]:
    """Relative links, with their anchors."""
    outside = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    return [link for link in _LINK.findall(outside) if "://" not in link and not link.startswith("mailto:")]


def anchors(page: Path) -> set[str]:
    """The anchors that a Markdown renderer makes of a page's headings."""
    words = (re.sub(r"[^\w\- ]", "", heading).strip().lower() for heading in _HEADING.findall(page.read_text()))
    return {heading.replace(" ", "-") for heading in words}
