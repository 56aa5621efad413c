"""A click on a facet changes the search, and a second click undoes it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sereno.jobs.queries.search import JOB_FIELDS
from sereno.search.syntax import parse
from sereno.server.web.facets import facets, left_out, toggled

VALUES = st.text(st.characters(blacklist_categories=("Cs", "Cc")), min_size=1, max_size=40).filter(str.strip)


# The search, the clicked facet, whether the click excludes it, and the search afterwards.
CLICKS = [
    ("", "state", "dead", False, "state:dead"),
    ("state:dead", "state", "dead", False, ""),
    ("state:dead", "state", "ready", False, "state:dead,ready"),
    ("state:dead,ready age:>1h", "state", "dead", False, "state:ready age:>1h"),
    ("", "tag", "canary", True, "-tag:canary"),
    ("-tag:canary", "tag", "eu", True, "-tag:canary,eu"),
    ("-tag:canary", "tag", "canary", True, ""),
    ("tag:canary", "tag", "canary", True, "-tag:canary"),
    ("-tag:canary", "tag", "canary", False, "tag:canary"),
    ("task:re*", "task", "re", False, "task:re*,re"),
    ('error:"a b" 4711', "queue", "x y", False, 'error:"a b" 4711 queue:"x y"'),
    ("", "tag", 'a"b\\c*', False, 'tag:"a\\"b\\\\c*"'),
    ("", "tag", "retry-of:7", False, "tag:retry-of:7"),
]


def test_a_click_on_a_facet_changes_the_search(subtests: pytest.Subtests) -> None:
    for search, name, value, negated, becomes in CLICKS:
        with subtests.test(search=search, name=name, value=value, negated=negated):
            assert toggled(parse(search, JOB_FIELDS).terms, name, value, negated=negated) == becomes


@given(VALUES, st.booleans())
def test_any_value_can_be_added_and_removed(value: str, negated: bool) -> None:
    search = toggled((), "tag", value, negated=negated)
    terms = parse(search, JOB_FIELDS).terms
    (term,) = terms
    assert (term.name, term.is_negated, [str(getattr(each, "text", "")) for each in term.values]) == (
        "tag",
        negated,
        [value],
    )
    assert toggled(terms, "tag", value, negated=negated) == ""


def test_facets_know_the_current_search() -> None:
    terms = parse("queue:a -queue:b state:dead", JOB_FIELDS).terms
    a, b, c = facets(terms, "queue", [("a", None), ("b", None), ("c", None)])
    assert [(each.is_chosen, each.is_excluded) for each in (a, b, c)] == [(True, False), (False, True), (False, False)]
    assert c.asking == "queue:a,c -queue:b state:dead"
    assert left_out(terms, 1) == "queue:a state:dead"
