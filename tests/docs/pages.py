"""The documentation as a reader copies it: blocks of code, with what the comment above each says to do with it.

<!-- run -->            a complete program (or SQL) that is run
<!-- run: first.py -->  the same, under this name
<!-- pytest: test.py --> tests that are run, and pass
<!-- file: shop.py -->  written beside the programs of the page, for them to import

A block that shows the middle of something has the rest of it around it, where a reader does not see it:

<!-- run
app = App()                       the lines of the comment come before the block; where the last of them
async def main() -> None:         ends with a colon, the block is indented to stand below it
-->
<!-- then
    assert …                      right after the block: what comes behind it, and proves what the page says of it
-->
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

_HIDDEN = r"(?:(?!-->).)*?"
_BLOCK = re.compile(
    rf"(?:<!-- (?P<verb>run|pytest|file)(?:: (?P<name>[\w.]+))?(?: |\n(?P<before>{_HIDDEN}))-->\n)?"
    rf"^```(?P<language>\w*)\n(?P<code>.*?)^```$"
    rf"(?:\n<!-- then\n(?P<after>{_HIDDEN})-->)?",
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
    before: str = ""
    after: str = ""

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def whole(self) -> str:
        """With what stands around it."""
        last = self.before.rstrip().rpartition("\n")[2]
        margin = " " * (len(last) - len(last.lstrip()) + 4) if last.endswith(":") else ""
        return self.before + indent(self.code, margin) + self.after


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text()
    for match in _BLOCK.finditer(text):
        line = text.count("\n", 0, match.start("code")) + 1
        around = match["before"] or "", match["after"] or ""
        yield Block(page, line, match["language"], match["code"], match["verb"], match["name"], *around)


def only(page: Path, language: str, *, beginning: str = "", name: str | None = None) -> str:
    """The one block of that language that begins so, or has that name."""
    found = [
        block.code
        for block in blocks(page)
        if block.language == language and block.code.startswith(beginning) and name in (None, block.name)
    ]
    assert len(found) == 1, f"{page} has {len(found)} of these blocks"
    return found[0]


def links(page: Path) -> list[str]:
    """Relative links, with their anchors."""
    outside = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    return [link for link in _LINK.findall(outside) if "://" not in link and not link.startswith("mailto:")]


def anchors(page: Path) -> set[str]:
    """The anchors that a Markdown renderer makes of a page's headings."""
    words = (re.sub(r"[^\w\- ]", "", heading).strip().lower() for heading in _HEADING.findall(page.read_text()))
    return {heading.replace(" ", "-") for heading in words}
