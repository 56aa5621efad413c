"""Plain technical English: words that say nothing about software stay out of the sources and the documentation."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
KINDS = {".css", ".html", ".js", ".md", ".py", ".sql", ".tmpl"}

# Words for people (a row or a process is none), measures without a unit, and words of a house or a post office.
# Of lower case, because a search that ignores case takes three times as long.
WORDS = re.compile(
    r"\b(?:(?:some|no|any|every)body|whom?ever|so (?:many|often)|what became of|makes? no sense|by the way|the house"
    r"|doorkeeper|guests?|glances?|(?:in)?sights?|sought|shel(?:f|ves)|gates?|part(?:y|ies)|errands?|couriers?|ledgers?"
    r"|wording|archivists?|inspectors?|verdicts?|concerns?|rehearsals?|steer(?:s|ed|ing)?|strangers?|goes on)\b"
)
# Where a word means something else: a Unix account, third parties in the sense of the law, a task's name in a table.
EXCEPTIONS = re.compile(r"`nobody`|chown -r nobody|\"nobody\"|^# nobody$|third[- ]part(y|ies)")


def _files() -> Iterator[Path]:
    yield from (ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md"))
    for folder in ("bench", "docs", "examples", "src", "tests", "tools"):
        yield from (
            path for path in sorted((ROOT / folder).rglob("*")) if path.suffix in KINDS and path != Path(__file__)
        )


def _findings() -> Iterator[str]:
    for path in _files():
        text = path.read_text().lower()
        # A line is read again only where the whole text has a match, because that is much faster.
        for number in sorted({text.count("\n", 0, match.start()) for match in WORDS.finditer(text)}):
            line = text.split("\n")[number]
            found = WORDS.search(EXCEPTIONS.sub("", line))
            if found is not None:
                yield f"{path.relative_to(ROOT)}:{number + 1}: {found[0]}: {line.strip()[:100]}"


def test_the_search_finds_forbidden_words() -> None:
    """Otherwise the test below would check nothing."""
    assert WORDS.search("whoever came while this seat was taken") is not None
    assert WORDS.search(EXCEPTIONS.sub("", "runs as `nobody`")) is None


def test_no_forbidden_word_is_used() -> None:
    assert list(_findings()) == []
