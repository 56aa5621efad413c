"""Every sentence of the pages has a translation in every language, with the same placeholders, and none is unused.

A sentence that is chosen while the page is drawn (`_(state)`) cannot be read off a template: `CHOSEN` names those.
"""

import ast
import json
import re
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

import pytest
from jinja2 import nodes

import sereno.server.web
from sereno.access.identity import ROLES
from sereno.jobs.lifecycle import STATES
from sereno.monitoring.alerts.condition import LEVELS, SENTENCES
from sereno.server.web.messages import LANGUAGES, choose, dictionary, say, singular
from sereno.server.web.page_request import SECTIONS, environment

WEB = Path(sereno.server.web.__file__).parent
OTHERS = [language for language in LANGUAGES if language != "en"]
PLACE = re.compile(r"%\((\w+)\)s")
PROBLEMS = (400, 401, 403, 404, 422, 429, 503)
CHOSEN = {
    *SENTENCES.values(),
    *LEVELS,
    *ROLES,
    *STATES,
    *(name for _, name, _, _ in SECTIONS),
    *(HTTPStatus(status).phrase for status in PROBLEMS),
    *("matched", "eligible", "sent", "delivered", "read"),
    *("show", "why"),
    # States of schedules, reasons of instants without a job, and choices of forms.
    *("enabled", "disabled", "parked", "finished", "skipped", "duplicate"),
    *("every", "daily", "cron", "once", "plan", "end", "clock", "shift", "skip", "first", "second", "both"),
    *("latest", "allow", "queue_one", "cancel_previous"),
    # The name of 422 depends on the version of Python.
    *("Unprocessable Entity", "Unprocessable Content"),
}


def in_templates() -> Iterator[tuple[str, str]]:
    """Yield each `_("…")` with its template. The parser finds them all, however they are written."""
    made = environment()
    for path in sorted((WEB / "templates").rglob("*.html")):
        for call in made.parse(path.read_text()).find_all(nodes.Call):
            if isinstance(call.node, nodes.Name) and call.node.name == "_":
                yield from ((path.name, text) for text in _texts_of(call.args[0]))


def _texts_of(node: nodes.Node) -> Iterator[str]:
    """Return the texts of a constant, or of both sides of `"a" if b else "c"`."""
    if isinstance(node, nodes.Const):
        yield str(node.value)
    elif isinstance(node, nodes.CondExpr):
        yield from _texts_of(node.expr1)
        if node.expr2 is not None:
            yield from _texts_of(node.expr2)


def in_python() -> Iterator[tuple[str, str]]:
    """Return each `page.say("…")` or `say("…")`, with its file."""
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


def used_texts() -> set[str]:
    """Return every text in the templates, and in the code that the pages use."""
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


def translations_of(language: str) -> Iterator[tuple[str, str, str]]:
    for path in sorted((WEB / "languages" / language).iterdir()):
        for sentence, translation in json.loads(path.read_text()).items():
            yield path.name, sentence, translation


@pytest.mark.slow
def test_the_extraction_finds_texts() -> None:
    """Otherwise the tests below would prove nothing."""
    assert ("frame.html", "Sign out") in set(in_templates())
    assert ("now.html", "%(count)s a minute") in set(in_templates())
    assert ("now.py", "All is well.") in set(in_python())


@pytest.mark.slow
def test_every_sentence_is_translated(subtests: pytest.Subtests) -> None:
    wanted = {*in_templates(), *in_python(), *(("chosen", each) for each in CHOSEN)}
    wanted = {(where, sentence) for where, sentence in wanted if _has_words(sentence)}
    for language in OTHERS:
        with subtests.test(language=language):
            known = dictionary(language).keys()
            assert sorted((where, sentence) for where, sentence in wanted if sentence not in known) == []


def _has_words(sentence: str) -> bool:
    """A dash or a placeholder alone is the same in every language."""
    return re.search(r"[A-Za-z]", PLACE.sub("", sentence)) is not None


@pytest.mark.slow
def test_no_translation_is_unused(subtests: pytest.Subtests) -> None:
    used = used_texts()
    for language in OTHERS:
        with subtests.test(language=language):
            unused = [(file, sentence) for file, sentence, _ in translations_of(language) if sentence not in used]
            assert unused == []


def test_placeholders_are_the_same(subtests: pytest.Subtests) -> None:
    for language in OTHERS:
        with subtests.test(language=language):
            for file, sentence, translation in translations_of(language):
                assert sorted(PLACE.findall(translation)) == sorted(PLACE.findall(sentence)), (file, sentence)
                if places := PLACE.findall(sentence):
                    assert translation % dict.fromkeys(places, "x"), (file, sentence)
                    assert sentence % dict.fromkeys(places, "x"), (file, sentence)
                assert translation.strip() == translation, (file, sentence)
                assert translation, (file, sentence)


def test_duplicate_keys_have_the_same_translation(subtests: pytest.Subtests) -> None:
    """The file that is read last would win."""
    for language in OTHERS:
        with subtests.test(language=language):
            translations: dict[str, set[str]] = {}
            for _, sentence, translation in translations_of(language):
                translations.setdefault(sentence, set()).add(translation)
            assert [each for each in translations.items() if len(each[1]) > 1] == []


def test_all_languages_have_the_same_files(subtests: pytest.Subtests) -> None:
    for language in OTHERS:
        with subtests.test(language=language):
            assert {file for file, _, _ in translations_of(language)} == {file for file, _, _ in translations_of("es")}


def test_the_language_is_chosen_by_cookie_and_header() -> None:
    assert choose("pt", "es") == "pt"
    assert choose("xx", "es-MX,es;q=0.9,en;q=0.8") == "es"
    assert choose(None, "fi, pt-BR;q=0.7, en;q=0.3") == "pt"
    assert choose(None, "") == "en"
    assert choose(None, "," * 5000 + "es") == "en"
    assert choose(None, "e\x00s;;;q=,,%$") == "en"


def test_a_missing_translation_falls_back_to_english() -> None:
    assert say("es", "A sentence without a translation, 100 %") == "A sentence without a translation, 100 %"
    assert say("pt", "%(count)s of these", count=3) == "3 of these"


# The number says it all, or stands for a limit that is never one.
SAME_FOR_ONE = re.compile(
    r"%\(count\)s( a (minute|second)| (fired|in use|more|ready|running|succeeded|since it was first seen))?$"
    r"|%\(act\)s|newest %\(count\)s|newest last|More than|^about|^and |^at most|: %\(count\)s$|types: |^held"
    r"|%\(count\)s (in %\(time\)s|of %\(all\)s|without|keys|schedules\. %\(bad\)s|fires at %\(at\)s: )|affects"
)


@pytest.mark.slow
def test_one_is_not_spoken_of_as_several(subtests: pytest.Subtests) -> None:
    counted = {text for _, text in [*in_templates(), *in_python()] if "%(count)s" in text}
    for language in LANGUAGES:
        with subtests.test(language=language):
            known = singular(language)
            assert sorted(text for text in counted if text not in known and not SAME_FOR_ONE.search(text)) == []
            assert sorted(known.keys() - counted) == []
            for text, one in known.items():
                assert set(PLACE.findall(one)) == set(PLACE.findall(text)) - {"count"}, text
    assert say("en", "%(count)s queues", count="1") == "1 queue"
    assert say("es", "%(count)s queues fall behind.", count=1) == "Una cola se retrasa."
    assert say("pt", "%(count)s queues", count=11) == "filas: 11"
