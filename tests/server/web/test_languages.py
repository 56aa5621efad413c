"""Every sentence of the pages is there in every language, with the same places, and none is left over.

A sentence that is chosen while the page is drawn (`_(state)`) cannot be read off a template: `CHOSEN` names those.
"""

import ast
import json
import re
from collections.abc import Iterable, Iterator
from http import HTTPStatus
from pathlib import Path

import pytest
from jinja2 import nodes

import sereno.server.web
from sereno.access.identity import ROLES
from sereno.jobs.lifecycle import STATES
from sereno.monitoring.alerts.condition import LEVELS, SAID
from sereno.server.web.messages import LANGUAGES, choose, dictionary, say
from sereno.server.web.page_request import SECTIONS, environment

WEB = Path(sereno.server.web.__file__).parent
OTHERS = [language for language in LANGUAGES if language != "en"]
PLACE = re.compile(r"%\((\w+)\)s")
PROBLEMS = (400, 401, 403, 404, 422, 429, 503)
CHOSEN = {
    *SAID.values(),
    *LEVELS,
    *ROLES,
    *STATES,
    *(name for _, name, _, _ in SECTIONS),
    *(HTTPStatus(status).phrase for status in PROBLEMS),
    *("matched", "eligible", "sent", "delivered", "read"),
    *("show", "why"),
    # What a schedule is, why an instant made no job, and what a form lets choose from.
    *("enabled", "disabled", "parked", "finished", "skipped", "duplicate"),
    *("every", "daily", "cron", "once", "plan", "end", "clock", "shift", "skip", "first", "second", "both"),
    *("latest", "allow", "queue_one", "cancel_previous"),
    # What 422 is called depends on the version of Python.
    *("Unprocessable Entity", "Unprocessable Content"),
}


def in_templates() -> Iterator[tuple[str, str]]:
    """Each `_("…")`, with its template. The parser sees them all, however they are written."""
    made = environment()
    for path in sorted((WEB / "templates").rglob("*.html")):
        for call in made.parse(path.read_text()).find_all(nodes.Call):
            if isinstance(call.node, nodes.Name) and call.node.name == "_":
                yield from ((path.name, text) for text in _texts_of(call.args[0]))


def _texts_of(node: nodes.Node) -> Iterator[str]:
    """Of one that is written there, and of both sides of `"a" if b else "c"`."""
    if isinstance(node, nodes.Const):
        yield str(node.value)
    elif isinstance(node, nodes.CondExpr):
        yield from _texts_of(node.expr1)
        if node.expr2 is not None:
            yield from _texts_of(node.expr2)


def in_python() -> Iterator[tuple[str, str]]:
    """Each `look.say("…")` or `say("…")`, with its file."""
    for path in sorted(WEB.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and node.args and _name(node.func) == "say":
                first = node.args[0]
                for each in (first.body, first.orelse) if isinstance(first, ast.IfExp) else (first,):
                    if isinstance(each, ast.Constant) and isinstance(each.value, str):
                        yield path.name, each.value


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def mentioned() -> set[str]:
    """Every text in the templates, and in the code of the pages and of what they show: others are said by nobody."""
    found = set(CHOSEN)
    sources = WEB.parents[1]
    others = [sources / name for name in ("cli", "contrib", "testing", "server/api")]
    for path in sources.rglob("*.py"):
        if any(path.is_relative_to(other) for other in others):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
    made = environment()
    for path in (WEB / "templates").rglob("*.html"):
        found.update(str(each.value) for each in made.parse(path.read_text()).find_all(nodes.Const))
    return found


def words_of(language: str) -> Iterator[tuple[str, str, str]]:
    for path in sorted((WEB / "languages" / language).iterdir()):
        for sentence, said in json.loads(path.read_text()).items():
            yield path.name, sentence, said


def test_the_readers_read() -> None:
    """Else the tests below would prove nothing."""
    assert ("frame.html", "Sign out") in set(in_templates())
    assert ("now.html", "%(count)s a minute") in set(in_templates())
    assert ("now.py", "All is well.") in set(in_python())


@pytest.mark.parametrize("language", OTHERS)
def test_every_sentence_is_there(language: str) -> None:
    known = dictionary(language).keys()
    wanted: Iterable[tuple[str, str]] = {*in_templates(), *in_python(), *(("chosen", each) for each in CHOSEN)}
    missing = sorted((where, sentence) for where, sentence in wanted if sentence not in known and _has_words(sentence))
    assert missing == []


def _has_words(sentence: str) -> bool:
    """A dash or a place alone is the same in every language."""
    return re.search(r"[A-Za-z]", PLACE.sub("", sentence)) is not None


@pytest.mark.parametrize("language", OTHERS)
def test_no_sentence_is_left_over(language: str) -> None:
    spoken = mentioned()
    assert sorted((file, sentence) for file, sentence, _ in words_of(language) if sentence not in spoken) == []


@pytest.mark.parametrize("language", OTHERS)
def test_the_places_are_the_same(language: str) -> None:
    for file, sentence, said in words_of(language):
        assert sorted(PLACE.findall(said)) == sorted(PLACE.findall(sentence)), (file, sentence)
        if places := PLACE.findall(sentence):
            assert said % dict.fromkeys(places, "x"), (file, sentence)
            assert sentence % dict.fromkeys(places, "x"), (file, sentence)
        assert said.strip() == said, (file, sentence)
        assert said, (file, sentence)


@pytest.mark.parametrize("language", OTHERS)
def test_two_files_say_the_same_of_one_sentence(language: str) -> None:
    """Whichever is read last would win."""
    said: dict[str, set[str]] = {}
    for _, sentence, words in words_of(language):
        said.setdefault(sentence, set()).add(words)
    assert {sentence: words for sentence, words in said.items() if len(words) > 1} == {}


@pytest.mark.parametrize("language", OTHERS)
def test_both_languages_have_the_same_files(language: str) -> None:
    assert {file for file, _, _ in words_of(language)} == {file for file, _, _ in words_of("es")}


def test_a_language_is_chosen() -> None:
    assert choose("pt", "es") == "pt"
    assert choose("xx", "es-MX,es;q=0.9,en;q=0.8") == "es"
    assert choose(None, "fi, pt-BR;q=0.7, en;q=0.3") == "pt"
    assert choose(None, "") == "en"
    assert choose(None, "," * 5000 + "es") == "en"
    assert choose(None, "e\x00s;;;q=,,%$") == "en"


def test_what_has_no_other_word_is_said_in_english() -> None:
    assert say("es", "A sentence that nobody has written, 100 %") == "A sentence that nobody has written, 100 %"
    assert say("pt", "%(count)s of these", count=3) == "3 of these"
