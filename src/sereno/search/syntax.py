r"""Parser of the search syntax of all lists: `state:dead tenant:r42 -tag:canary attempts:>3 "a word"`.

    field:value          equal to the value; `field:a,b`: one of these
    field:start*         starts with; `field:*`: not empty
    field:*end           ends with; `field:*part*`: contains
    field:>3  field:<=3  more than, at most
    field:2..5           from and to; `2..` and `..5` are open on one side
    -field:value         not equal
    args.account:42      a path into a field that holds JSON
    word                 without a field: matches the main fields of the list
    "two words"          quotes keep spaces, commas, colons and stars literal; \" and \\ within

All terms must match. Each list defines its fields and their kinds.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Literal, TypeAlias

from sereno.errors import InvalidArguments

# Limits of a search: characters, terms, names in a JSON path, and digits of an id (a bigint).
LONGEST = 2000
MOST_TERMS = 30
DEEPEST = 5
MOST_DIGITS = 18

# exact, word, part: texts. Words and parts may have a star at each end; a part without one matches anywhere.
# choice: one of a few. id: a whole number. number, moment, length: ordered. inside: JSON, with a path.
Kind: TypeAlias = Literal["exact", "word", "part", "choice", "id", "number", "moment", "length", "inside"]
STARRED: tuple[Kind, ...] = ("word", "part", "choice")
ORDERED: tuple[Kind, ...] = ("number", "moment", "length")
Operator: TypeAlias = Literal[">", ">=", "<", "<="]
OPERATORS: tuple[Operator, ...] = (">=", "<=", ">", "<")

_UNSTORABLE = re.compile("[\x00-\x08\x0e-\x1f\x7f\ud800-\udfff]")
_SPACE = re.compile(r"\s*")
_NAME = re.compile(r'[^\s:",]+(?=:)')
_PLAIN = re.compile(r'[^\s",]+')
_QUOTED = re.compile(r'"((?:[^"\\]|\\["\\])*)"')


class InvalidSearch(InvalidArguments):
    """A search that cannot be parsed. `at`: position in the text, counted from 0."""

    def __init__(self, at: int, problem: str) -> None:
        super().__init__(f"at character {at + 1} of the search: {problem}")
        self.at = at


YES_NO = ("yes", "no")


@dataclass(frozen=True, slots=True)
class SearchField:
    """One searchable field of a list. `single`: one term with one value, which cannot be negated."""

    name: str
    kind: Kind
    choices: tuple[str, ...] = ()
    single: bool = False


# A word without a field.
BARE = SearchField("", "word")


@dataclass(frozen=True, slots=True)
class SearchWord:
    """A text, or with stars its start, its end or a part of it. A quoted word is never a number."""

    text: str
    is_prefix: bool = False
    is_quoted: bool = False
    is_suffix: bool = False
    at: int = field(default=0, compare=False)

    @property
    def is_whole(self) -> bool:
        """Return whether it has no star."""
        return not (self.is_prefix or self.is_suffix)

    def __str__(self) -> str:
        text = self.text
        if self.is_quoted:
            text = '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
        return "*" * self.is_suffix + text + "*" * self.is_prefix


@dataclass(frozen=True, slots=True)
class SearchComparison:
    operator: Operator
    text: str
    at: int = field(default=0, compare=False)

    def __str__(self) -> str:
        return f"{self.operator}{self.text}"


@dataclass(frozen=True, slots=True)
class SearchRange:
    """From and to, both included; empty on an open side."""

    low: str
    high: str
    at: int = field(default=0, compare=False)

    def __str__(self) -> str:
        return f"{self.low}..{self.high}"


Value: TypeAlias = SearchWord | SearchComparison | SearchRange


@dataclass(frozen=True, slots=True)
class SearchTerm:
    """One of the values matches; if negated, none does. `name` is empty for a bare word; `path`: into JSON."""

    name: str
    values: tuple[Value, ...]
    is_negated: bool = False
    path: tuple[str, ...] = ()
    at: int = field(default=0, compare=False)

    def __str__(self) -> str:
        name = ".".join((self.name, *self.path))
        values = ",".join(map(str, self.values))
        return "-" * self.is_negated + (f"{name}:{values}" if name else values)


@dataclass(frozen=True, slots=True)
class Search:
    """The terms of a search, all of which must match."""

    terms: tuple[SearchTerm, ...] = ()

    def __str__(self) -> str:
        return " ".join(map(str, self.terms))


def parse(text: str, fields: Sequence[SearchField]) -> Search:
    """Return the parsed search, or raise InvalidSearch with the position and the alternatives."""
    if len(text) > LONGEST:
        raise InvalidSearch(LONGEST, f"the text has {len(text):,} characters, at most {LONGEST:,} are allowed")
    if (found := _UNSTORABLE.search(text)) is not None:
        raise InvalidSearch(found.start(), "this character cannot be stored: remove it")
    reader = _SearchReader(text, fields)
    terms: list[SearchTerm] = []
    while (term := reader.term()) is not None:
        if len(terms) == MOST_TERMS:
            raise InvalidSearch(term.at, f"at most {MOST_TERMS} terms are allowed")
        terms.append(term)
    _check_singles(terms, fields)
    return Search(tuple(terms))


class _SearchReader:
    """Reads a search from left to right."""

    def __init__(self, text: str, fields: Sequence[SearchField]) -> None:
        self._text = text
        self._fields = {each.name: each for each in fields}
        self._at = 0

    def term(self) -> SearchTerm | None:
        """Return the next term; None at the end."""
        self._take(_SPACE)
        start = self._at
        if start == len(self._text):
            return None
        is_negated = self._takes("-")
        name_at = self._at
        name = self._take(_NAME)
        if name is None:
            return SearchTerm("", self._values(BARE), is_negated, at=start)
        spec, path = self._field(name[0], name_at)
        if is_negated and (spec.single or spec.kind in ORDERED):
            more = ": reverse the comparison" if spec.kind in ORDERED else ""
            raise InvalidSearch(start, f"{spec.name} cannot be negated{more}")
        self._at += 1
        return SearchTerm(spec.name, self._values(spec), is_negated, path, start)

    def _field(self, name: str, at: int) -> tuple[SearchField, tuple[str, ...]]:
        first, *path = name.split(".")
        spec = self._fields.get(first)
        if spec is None or (path and spec.kind != "inside"):
            raise InvalidSearch(at, _unknown(name, list(self._fields)))
        if spec.kind == "inside" and (not path or not all(path)):
            raise InvalidSearch(at, f"{first} needs a path: write {first}.name:value, such as {first}.account:42")
        if len(path) > DEEPEST:
            raise InvalidSearch(at, f"a path has at most {DEEPEST} names")
        return spec, tuple(path)

    def _values(self, spec: SearchField) -> tuple[Value, ...]:
        values = [self._value(spec)]
        while self._takes(","):
            if spec.single or spec.kind in ORDERED:
                raise InvalidSearch(self._at - 1, f"{spec.name} takes one value: quote it if the comma is part of it")
            values.append(self._value(spec))
        return tuple(values)

    def _value(self, spec: SearchField) -> Value:
        if spec.kind in ORDERED:
            return self._ordered()
        word = self._word()
        if spec.kind == "choice" and not (word.is_whole and word.text in spec.choices):
            raise InvalidSearch(word.at, _not_among(str(word), spec))
        if spec.kind not in STARRED and not word.is_whole:
            raise InvalidSearch(
                word.at, f"{spec.name} does not support a star: write the whole value, or quote the star"
            )
        if spec.kind == "id" and not _is_id(word.text):
            raise InvalidSearch(word.at, f'"{word.text:.60}" is not a number: write it like 4711')
        return word

    def _ordered(self) -> Value:
        at = self._at
        operator = next((each for each in OPERATORS if self._takes(each)), None)
        if operator is None and self._text.startswith('"', at):
            return self._word()
        found = self._take(_PLAIN)
        if found is None:
            raise InvalidSearch(self._at, "a value is missing, such as >3 or 2..5")
        self._check_ended()
        low, dots, high = found[0].partition("..")
        if dots and (operator is not None or not (low or high) or ".." in high):
            raise InvalidSearch(at, "write a range as 2..5, 2.. or ..5")
        if operator is not None:
            return SearchComparison(operator, found[0], at)
        return SearchRange(low, high, at) if dots else SearchWord(found[0], at=at)

    def _word(self) -> SearchWord:
        at = self._at
        if self._text.startswith(('"', '*"'), at):
            return self._quoted(at)
        found = self._take(_PLAIN)
        text = "" if found is None else found[0]
        is_prefix = text.endswith("*")
        is_suffix = text.startswith("*") and len(text) > 1 + is_prefix
        text = text[is_suffix : len(text) - is_prefix]
        if "*" in text:
            place = at + is_suffix + text.index("*")
            raise InvalidSearch(
                place, "a star is allowed only at the start or the end: quote it if it is meant literally"
            )
        if not (text or is_prefix):
            raise InvalidSearch(at, "a value is missing")
        self._check_ended()
        return SearchWord(text, is_prefix, is_suffix=is_suffix, at=at)

    def _quoted(self, at: int) -> SearchWord:
        is_suffix = self._takes("*")
        quoted = self._take(_QUOTED)
        if quoted is None:
            raise InvalidSearch(
                self._at, 'the quote is not closed: write "text", with \\" for a quote and \\\\ for a backslash'
            )
        text = re.sub(r"\\(.)", r"\1", quoted[1])
        if not text:
            raise InvalidSearch(at, "the quoted text is empty")
        word = SearchWord(text, self._takes("*"), is_quoted=True, is_suffix=is_suffix, at=at)
        self._check_ended()
        return word

    def _check_ended(self) -> None:
        if self._text.startswith('"', self._at) or _PLAIN.match(self._text, self._at):
            raise InvalidSearch(self._at, "a space or a comma is missing")

    def _take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self._text, self._at)
        if found is not None:
            self._at = found.end()
        return found

    def _takes(self, text: str) -> bool:
        is_there = self._text.startswith(text, self._at)
        self._at += len(text) * is_there
        return is_there


def _check_singles(terms: Sequence[SearchTerm], fields: Sequence[SearchField]) -> None:
    once = {each.name for each in fields if each.single}
    seen: set[str] = set()
    for term in terms:
        if term.name in seen & once:
            raise InvalidSearch(term.at, f"{term.name} is given twice: give it once")
        seen.add(term.name)


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS


def _unknown(name: str, names: Sequence[str]) -> str:
    near = get_close_matches(name.lower(), names, n=1)
    what = f"did you mean {near[0]}?" if near else f"fields are {', '.join(names)}."
    return f'there is no field "{name:.60}": {what} Quote a word that contains a colon'


def _not_among(text: str, spec: SearchField) -> str:
    near = get_close_matches(text.lower(), spec.choices, n=1)
    what = f"did you mean {near[0]}?" if near else f"values are {', '.join(spec.choices)}"
    return f"{text:.60} is not a value of {spec.name}: {what}"
