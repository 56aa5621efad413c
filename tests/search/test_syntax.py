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
    InvalidSearch,
    Search,
    SearchComparison,
    SearchField,
    SearchRange,
    SearchTerm,
    SearchWord,
    Value,
    parse,
)

FIELDS = (
    SearchField("state", "choice", ("dead", "ready")),
    SearchField("task", "word"),
    SearchField("tag", "word"),
    SearchField("id", "exact"),
    SearchField("error", "exact", single=True),
    SearchField("attempts", "number"),
    SearchField("created", "moment"),
    SearchField("args", "inside"),
    SearchField("job", "id"),
    SearchField("message", "part"),
)


SEARCHES = (
    ("", ()),
    ("  ", ()),
    ("state:dead", (SearchTerm("state", (SearchWord("dead"),)),)),
    ("state:dead,ready", (SearchTerm("state", (SearchWord("dead"), SearchWord("ready"))),)),
    ("-tag:canary", (SearchTerm("tag", (SearchWord("canary"),), is_negated=True),)),
    ("task:menu:*", (SearchTerm("task", (SearchWord("menu:", is_prefix=True),)),)),
    ("task:*", (SearchTerm("task", (SearchWord("", is_prefix=True),)),)),
    ('error:"connection reset"', (SearchTerm("error", (SearchWord("connection reset", is_quoted=True),)),)),
    ('task:"a,\\"b\\\\"', (SearchTerm("task", (SearchWord('a,"b\\', is_quoted=True),)),)),
    ('task:"a b"*', (SearchTerm("task", (SearchWord("a b", is_prefix=True, is_quoted=True),)),)),
    ("task:*end", (SearchTerm("task", (SearchWord("end", is_suffix=True),)),)),
    ("*part*", (SearchTerm("", (SearchWord("part", is_prefix=True, is_suffix=True),)),)),
    ('task:*"a b"*', (SearchTerm("task", (SearchWord("a b", is_prefix=True, is_quoted=True, is_suffix=True),)),)),
    (
        "job:7 -job:8",
        (SearchTerm("job", (SearchWord("7"),)), SearchTerm("job", (SearchWord("8"),), is_negated=True)),
    ),
    ("message:a,b*", (SearchTerm("message", (SearchWord("a"), SearchWord("b", is_prefix=True))),)),
    ("id:7,8", (SearchTerm("id", (SearchWord("7"), SearchWord("8"))),)),
    ("attempts:>3", (SearchTerm("attempts", (SearchComparison(">", "3"),)),)),
    ("attempts:<=3", (SearchTerm("attempts", (SearchComparison("<=", "3"),)),)),
    ("created:2026-11-01..", (SearchTerm("created", (SearchRange("2026-11-01", ""),)),)),
    ("attempts:2..5", (SearchTerm("attempts", (SearchRange("2", "5"),)),)),
    ("args.a.b:42", (SearchTerm("args", (SearchWord("42"),), path=("a", "b")),)),
    ("word", (SearchTerm("", (SearchWord("word"),)),)),
    (
        '-"a:b" c',
        (SearchTerm("", (SearchWord("a:b", is_quoted=True),), is_negated=True), SearchTerm("", (SearchWord("c"),))),
    ),
    ("tag:>3 tag:a..b", (SearchTerm("tag", (SearchWord(">3"),)), SearchTerm("tag", (SearchWord("a..b"),)))),
)


def test_a_search_is_parsed_into_terms(subtests: pytest.Subtests) -> None:
    for text, terms in SEARCHES:
        with subtests.test(text=text):
            assert parse(text, FIELDS) == Search(terms)


SYNTAX_ERRORS = (
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
)


def test_a_search_with_a_syntax_error_is_refused_with_its_position(subtests: pytest.Subtests) -> None:
    for text, at, message in SYNTAX_ERRORS:
        with subtests.test(text=text):
            with pytest.raises(InvalidSearch) as caught:
                parse(text, FIELDS)
            assert caught.value.at == at
            assert message in str(caught.value)
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


@pytest.mark.slow
@given(st.text(max_size=80) | st.lists(PIECES, max_size=20).map("".join))
def test_any_text_is_parsed_or_refused_and_printing_round_trips(text: str) -> None:
    try:
        found = parse(text, FIELDS)
    except InvalidArguments:
        return
    assert parse(str(found), FIELDS) == found


PLAIN = st.text("abz0.:-<é", min_size=1, max_size=8)
ANY = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8)
WORDS = st.builds(SearchWord, PLAIN, st.booleans()) | st.builds(SearchWord, ANY, st.booleans(), st.just(True))
ORDERED: st.SearchStrategy[Value] = st.builds(
    SearchComparison, st.sampled_from([">", ">=", "<", "<="]), st.text("0123456789", min_size=1, max_size=5)
) | st.builds(SearchRange, st.text("123", max_size=3), st.text("456", min_size=1, max_size=3))
TERMS = st.builds(
    SearchTerm, st.sampled_from(["task", "tag"]), st.lists(WORDS, min_size=1, max_size=4).map(tuple), st.booleans()
) | st.builds(SearchTerm, st.just("attempts"), ORDERED.map(lambda value: (value,)))


@pytest.mark.slow
@given(st.lists(TERMS, max_size=8).map(tuple))
def test_printed_terms_are_parsed_as_the_same_terms(terms: Any) -> None:
    search = Search(terms)
    assert parse(str(search), FIELDS) == search
