"""Previews are rendered in a separate process, so a template cannot use up the resources of the server."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sereno import Content, Recipient
from sereno.notifications.templates import lint as template_lint
from sereno.notifications.templates import render_process, templates
from sereno.notifications.templates.lint import declared, lint
from sereno.notifications.templates.lint_process import compile_apart, lint_apart
from sereno.notifications.templates.render_process import render_apart
from sereno.notifications.templates.rows import TemplatePlace
from sereno.notifications.templates.templates import TemplateFailed, TemplateSet
from tests.notifications.templates.hostile_templates import LARGE_TO_COMPILE, SLOW_TO_COMPILE, UNPAID

# Seconds. On a busy machine a process reaches its limits of memory and processor time late.
LONG = 600.0
ADA = Recipient(key="user:7", locale="pt-BR", unsubscribe_url="https://u")


def rows(**parts: str) -> TemplateSet:
    made = TemplateSet(None)
    made.use_rows({TemplatePlace("e", "any", "", "", part): text for part, text in parts.items()})
    return made


@pytest.mark.slow
def test_a_preview_equals_the_message_of_a_worker_and_compiles_nothing_here(tmp_path: Path) -> None:
    (tmp_path / "e").mkdir()
    (tmp_path / "e" / "any.title.j2").write_text("{{ code }} of a file")
    (tmp_path / "e" / "email.body.j2").write_text("hidden by a row")
    words = TemplateSet(tmp_path)
    words.use_rows(
        {
            TemplatePlace(
                "e", "email", "", "", "body"
            ): "{% include 'title' %} {{ recipient.key }} {{ unsubscribe_url }}",
            TemplatePlace("e", "any", "", "", "options"): '{"sound": {{ code|tojson }}}',
        }
    )
    before = templates._made.cache_info().misses
    made = render_apart(words, "e", "email", {"code": "é<"}, ADA)
    assert made == Content("é< of a file", "é< of a file user:7 https://u", None, {"sound": "é<"})
    assert templates._made.cache_info().misses == before
    assert made == words.render("e", "email", "pt-BR", None, {"code": "é<"}, ADA)


@pytest.mark.slow
def test_missing_and_invalid_templates_are_reported() -> None:
    assert render_apart(TemplateSet(None), "e", "email", {}, ADA) is None
    with pytest.raises(TemplateFailed, match=r"row e/any\.body, line 2: 'nme' is undefined"):
        render_apart(rows(body="Dear\n{{ nme }}"), "e", "email", {}, ADA)
    with pytest.raises(TemplateFailed, match="it does too much"):
        render_apart(rows(body=UNPAID[0]), "e", "email", {}, ADA)


def test_a_process_that_takes_too_long_is_stopped() -> None:
    with pytest.raises(TemplateFailed, match="it takes too long"):
        render_apart(rows(body="x"), "e", "email", {}, ADA, seconds=0.0)


def test_concurrent_processes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render_process, "TURN_SECONDS", 0.0)
    for _ in range(render_process.MOST_AT_ONCE):
        assert render_process._slots.acquire(blocking=False)
    try:
        with pytest.raises(TemplateFailed, match="too many previews at once"):
            render_apart(rows(body="x"), "e", "email", {}, ADA)
    finally:
        render_process._slots.release(render_process.MOST_AT_ONCE)
    made = render_apart(rows(body="x"), "e", "email", {}, ADA)
    assert made is not None
    assert made.body == "x"


def test_the_process_does_not_get_the_servers_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """It contains secrets."""
    seen: list[dict[str, str]] = []
    run = subprocess.run

    def spy(*args: Any, **named: Any) -> Any:
        seen.append(named["env"])
        return run(*args, **named)

    monkeypatch.setenv("SERENO_SECRET", "hunter2")
    monkeypatch.setattr(subprocess, "run", spy)
    assert render_apart(rows(body="x"), "e", "email", {}, ADA) is not None
    assert [key for key in seen[0] if "SERENO" in key] == []


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not keep these limits")
@pytest.mark.parametrize(
    ("deed", "expected"),
    [
        ("x = bytearray(300 * 1024 * 1024)", "MemoryError"),
        pytest.param("while True: pass", "", marks=pytest.mark.slow),
        ("open('never', 'wb', 0).write(b'x')", "File too large"),
    ],
    ids=["memory", "cpu", "files"],
)
def test_the_process_has_limits(tmp_path: Path, deed: str, expected: str) -> None:
    code = f"from sereno.notifications.templates.render_process import limit; limit(cpu=1)\n{deed}\nprint('survived')"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert ended.returncode != 0
    assert expected in ended.stderr
    assert "survived" not in ended.stdout


# Lint and compile


@pytest.mark.slow
def test_lint_finds_the_same_in_a_process_and_nothing_is_compiled_here(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "email.body.j2").write_text("{{ colour }}")
    (tmp_path / "a" / "notes.txt").write_text("")
    words = TemplateSet(tmp_path)
    words.use_rows(
        {
            TemplatePlace("a", "sms", "pt", "acme", "body"): "{{ code }}" + "b" * 200,
            TemplatePlace("b", "email", "", "", "html"): "{{ code",
            TemplatePlace("c", "any", "", "", "body"): "{{ nme }}",
        }
    )
    events = {"a": declared(["email", "sms"], dict[str, str]), "c": declared(["expo"], None)}
    wanted = (words, events, {"sms": 100, "expo": 4096}, {"a": {"code": "7"}, "c": {}})
    before = templates._made.cache_info().misses
    found = lint_apart(*wanted)
    assert templates._made.cache_info().misses == before
    assert found == lint(*wanted)
    assert {finding.level for finding in found} == {"error", "warning"}
    assert len(found) > 5


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not keep these limits")
@pytest.mark.parametrize(
    ("text", "cpu_seconds", "template", "expected"),
    [
        (LARGE_TO_COMPILE, 60, "row b/any.body", "it takes too much memory"),
        (SLOW_TO_COMPILE, 1, "b", render_process.ENDED),
    ],
    ids=["memory", "cpu"],
)
def test_a_template_that_takes_too_much_is_a_finding_and_the_others_are_checked(
    text: str, cpu_seconds: int, template: str, expected: str
) -> None:
    words = TemplateSet(None)
    texts = {"a": "{{ x }}", "b": text, "c": "{{ nme }}"}
    words.use_rows({TemplatePlace(event, "any", "", "", "body"): words for event, words in texts.items()})
    found = lint_apart(words, None, None, {"a": {"x": 1}, "c": {}}, seconds=LONG, cpu_seconds=cpu_seconds)
    assert [(finding.level, finding.template, finding.message) for finding in found] == [
        ("error", template, expected),
        ("error", "c by any", "row c/any.body, line 1: 'nme' is undefined"),
    ]


def test_a_lint_that_times_out_names_the_unchecked_events() -> None:
    words = TemplateSet(None)
    words.use_rows({TemplatePlace(event, "any", "", "", "body"): "x" for event in ("a", "b", "c")})
    (found,) = lint_apart(words, seconds=0.0)
    assert (found.level, found.template) == ("error", "a and 2 more")
    assert found.message.startswith("not checked")


@pytest.mark.slow
def test_a_template_is_compiled_in_a_process() -> None:
    before = templates._made.cache_info().misses
    compile_apart("name", "{{ code }}", is_html=True)
    with pytest.raises(TemplateFailed, match="name, line 1: unexpected end of template"):
        compile_apart("name", "{{ code", is_html=False)
    with pytest.raises(TemplateFailed, match="a lone surrogate"):
        compile_apart("name", "\ud800", is_html=False)
    with pytest.raises(TemplateFailed, match="was stopped"):
        compile_apart("name", "x", is_html=False, seconds=0.0)
    assert templates._made.cache_info().misses == before


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not keep these limits")
def test_a_template_that_takes_too_much_to_compile_is_refused() -> None:
    """In the server it took 270 MB and never freed them."""
    with pytest.raises(TemplateFailed, match="too much memory"):
        compile_apart("name", LARGE_TO_COMPILE, is_html=False, seconds=LONG)


@pytest.mark.slow
def test_findings_of_one_event_are_bounded() -> None:
    names = "".join(f"{{{{ n{number} }}}}" for number in range(2000))
    found = lint(rows(body=names), {"e": declared(["email"], Recipient)})
    assert len(found) == template_lint.MOST_FINDINGS + 1
    assert found[-1].message.startswith("there are more")
