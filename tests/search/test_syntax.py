"""The search syntax: terms are parsed, and errors have a position."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sereno.errors import InvalidArguments
from sereno.search.syntax import (
    DEEPEST,
    LONGEST,
    MOST_TERMS,
    Comparison,
    Field,
    InvalidSearch,
    Range,
    Search,
    Term,
    Value,
    Word,
    parse,
)

FIELDS = (
    Field("state", "choice", ("dead", "ready")),
    Field("task", "word"),
    Field("tag", "word"),
    Field("id", "exact"),
    Field("error", "exact", single=True),
    Field("attempts", "number"),
    Field("created", "moment"),
    Field("args", "inside"),
    Field("job", "id"),
    Field("message", "part"),
)


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("", ()),
        ("  ", ()),
        ("state:dead", (Term("state", (Word("dead"),)),)),
        ("state:dead,ready", (Term("state", (Word("dead"), Word("ready"))),)),
        ("-tag:canary", (Term("tag", (Word("canary"),), is_negated=True),)),
        ("task:menu:*", (Term("task", (Word("menu:", is_prefix=True),)),)),
        ("task:*", (Term("task", (Word("", is_prefix=True),)),)),
        ('error:"connection reset"', (Term("error", (Word("connection reset", is_quoted=True),)),)),
        ('task:"a,\\"b\\\\"', (Term("task", (Word('a,"b\\', is_quoted=True),)),)),
        ('task:"a b"*', (Term("task", (Word("a b", is_prefix=True, is_quoted=True),)),)),
        ("task:*end", (Term("task", (Word("end", is_suffix=True),)),)),
        ("*part*", (Term("", (Word("part", is_prefix=True, is_suffix=True),)),)),
        ('task:*"a b"*', (Term("task", (Word("a b", is_prefix=True, is_quoted=True, is_suffix=True),)),)),
        ("job:7 -job:8", (Term("job", (Word("7"),)), Term("job", (Word("8"),), is_negated=True))),
        ("message:a,b*", (Term("message", (Word("a"), Word("b", is_prefix=True))),)),
        ("id:7,8", (Term("id", (Word("7"), Word("8"))),)),
        ("attempts:>3", (Term("attempts", (Comparison(">", "3"),)),)),
        ("attempts:<=3", (Term("attempts", (Comparison("<=", "3"),)),)),
        ("created:2026-11-01..", (Term("created", (Range("2026-11-01", ""),)),)),
        ("attempts:2..5", (Term("attempts", (Range("2", "5"),)),)),
        ("args.a.b:42", (Term("args", (Word("42"),), path=("a", "b")),)),
        ("word", (Term("", (Word("word"),)),)),
        ('-"a:b" c', (Term("", (Word("a:b", is_quoted=True),), is_negated=True), Term("", (Word("c"),)))),
        ("tag:>3 tag:a..b", (Term("tag", (Word(">3"),)), Term("tag", (Word("a..b"),)))),
    ],
)
def test_a_search_is_parsed_into_terms(text: str, terms: tuple[Term, ...]) -> None:
    assert parse(text, FIELDS) == Search(terms)


@pytest.mark.parametrize(
    ("text", "at", "words"),
    [
        ("stat:dead", 0, 'there is no field "stat": did you mean state?'),
        ("id:7 -stat:dead", 6, "did you mean state"),
        ("zzz:1", 0, "fields are state, task, tag"),
        ("state:deed", 6, "did you mean dead"),
        ("state:dead,x", 11, "values are dead, ready"),
        ("state:de*", 6, "not a value of state"),
        ("id:7*", 3, "whole value"),
        ("task:", 5, "missing"),
        ("task:a,", 7, "missing"),
        ("-", 1, "missing"),
        ("task:a*b", 6, "only at the start or the end"),
        ("task:*a*b*", 7, "only at the start or the end"),
        ("task:**", 5, "only at the start or the end"),
        ('task:*"a', 6, "not closed"),
        ("job:one", 4, "not a number"),
        ("job:7*", 4, "whole value"),
        ("job:1234567890123456789", 4, "not a number"),
        ("state:*ad", 6, "not a value of state"),
        ('task:"a', 5, "not closed"),
        ('task:""', 5, "text is empty"),
        ('task:"a"b', 8, "a space or a comma"),
        ('task:a"b"', 6, "a space or a comma"),
        ("attempts:1..2..3", 9, "write a range"),
        ("attempts:..", 9, "write a range"),
        ("attempts:>", 10, "missing"),
        ("attempts:1,2", 10, "one value"),
        ("-attempts:>3", 0, "reverse the comparison"),
        ("-error:x", 0, "cannot be negated"),
        ("error:x error:y", 8, "given twice"),
        ("args:1", 0, "needs a path"),
        ("args.:1", 0, "needs a path"),
        ("args.a.b.c.d.e.f:1", 0, f"at most {DEEPEST}"),
        ("task.x:1", 0, "no field"),
        ("a\x00b", 1, "cannot be stored"),
        ("a " * (MOST_TERMS + 1), 2 * MOST_TERMS, "at most"),
        ("a" * (LONGEST + 1), LONGEST, "at most"),
    ],
)
def test_an_invalid_search_is_refused_with_its_position(text: str, at: int, words: str) -> None:
    with pytest.raises(InvalidSearch) as caught:
        parse(text, FIELDS)
    assert caught.value.at == at
    assert words in str(caught.value)
    assert f"at character {at + 1} " in str(caught.value)


PIECES = st.sampled_from(
    [
        "state:",
        "-",
        "tag",
        "args.",
        ".",
        "..",
        ">",
        "<=",
        "*",
        '"',
        "\\",
        ",",
        " ",
        "1",
        "é",
        "attempts:",
        "\ud800",
        "dead",
    ]
)


@given(st.text(max_size=80) | st.lists(PIECES, max_size=20).map("".join))
def test_any_text_is_parsed_or_refused_and_printing_round_trips(text: str) -> None:
    try:
        found = parse(text, FIELDS)
    except InvalidArguments:
        return
    assert parse(str(found), FIELDS) == found


PLAIN = st.text("abz0.:-<é", min_size=1, max_size=8)
ANY = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8)
WORDS = st.builds(Word, PLAIN, st.booleans()) | st.builds(Word, ANY, st.booleans(), st.just(True))
ORDERED: st.SearchStrategy[Value] = st.builds(
    Comparison, st.sampled_from([">", ">=", "<", "<="]), st.text("0123456789", min_size=1, max_size=5)
) | st.builds(Range, st.text("123", max_size=3), st.text("456", min_size=1, max_size=3))
TERMS = st.builds(
    Term, st.sampled_from(["task", "tag"]), st.lists(WORDS, min_size=1, max_size=4).map(tuple), st.booleans()
) | st.builds(Term, st.just("attempts"), ORDERED.map(lambda value: (value,)))


@given(st.lists(TERMS, max_size=8).map(tuple))
def test_printed_terms_are_parsed_as_the_same(terms: Any) -> None:
    search = Search(terms)
    assert parse(str(search), FIELDS) == search
