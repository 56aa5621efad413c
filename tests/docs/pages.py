"""The code blocks of the documentation. The comment above a block says how a test runs it.

<!-- run -->             a complete program (or SQL): the test runs it
<!-- run: first.py -->   the same, saved under this name
<!-- pytest: test.py --> tests: the test runs pytest on them, and they pass
<!-- file: shop.py -->   saved beside the programs of the page, so that they can import it

A block that shows a part of a program names the file that holds the rest, relative to the page:

<!-- run: orders.py, setup: ../blocks/recipes/orders.py -->

That file has one line `# the block of the page` (`--` in SQL). The block replaces the line and gets its indentation.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from textwrap import indent

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

_BLOCK = re.compile(
    r"(?:<!-- (?P<verb>run|pytest|file)(?:: (?P<name>[\w.]+))?(?:, setup: (?P<setup>[\w./]+))? -->\n)?"
    r"^```(?P<language>\w*)\n(?P<code>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
_PLACE = re.compile(r"^( *)(?:#|--) the block of the page\n", re.MULTILINE)
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
    setup: Path | None = None

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def whole(self) -> str:
        """The program that the test runs: the block, inside its set-up file if it has one."""
        if self.setup is None:
            return self.code
        before, margin, after = _PLACE.split(self.setup.read_text())
        return before + indent(self.code, margin) + after


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text()
    for match in _BLOCK.finditer(text):
        line = text.count("\n", 0, match.start("code")) + 1
        setup = page.parent / match["setup"] if match["setup"] else None
        yield Block(page, line, match["language"], match["code"], match["verb"], match["name"], setup)


def only(page: Path, language: str, *, beginning: str = "", name: str | None = None) -> str:
    """Return the only block of a language with this beginning or this name."""
    found = [
        block.code
        for block in blocks(page)
        if block.language == language and block.code.startswith(beginning) and name in (None, block.name)
    ]
    assert len(found) == 1, f"{page} has {len(found)} of these blocks"
    return found[0]


def links(page: Path) -> list[str]:
    """Return the relative links of a page, with their anchors."""
    outside = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    return [link for link in _LINK.findall(outside) if "://" not in link and not link.startswith("mailto:")]


@cache
def anchors(page: Path) -> set[str]:
    """Return the anchors that a Markdown renderer derives from the headings of a page."""
    words = (re.sub(r"[^\w\- ]", "", heading).strip().lower() for heading in _HEADING.findall(page.read_text()))
    return {heading.replace(" ", "-") for heading in words}
