"""Previews are rendered in a process of their own: what a template takes there, it does not take from the server."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sereno import Content, Recipient
from sereno.channels import render_process, templates
from sereno.channels.render_process import render_apart
from sereno.channels.templates import TemplateFailed, TemplateSet
from tests.channels.hostile_templates import UNPAID

ADA = Recipient(key="user:7", locale="pt-BR", unsubscribe_url="https://u")


def rows(**parts: str) -> TemplateSet:
    made = TemplateSet(None)
    made.use_rows({("e", "any", "", "", part): text for part, text in parts.items()})
    return made


def test_the_same_words_as_in_a_worker_and_nothing_is_compiled_here(tmp_path: Path) -> None:
    (tmp_path / "e").mkdir()
    (tmp_path / "e" / "any.title.j2").write_text("{{ code }} of a file")
    (tmp_path / "e" / "email.body.j2").write_text("hidden by a row")
    words = TemplateSet(tmp_path)
    words.use_rows(
        {
            ("e", "email", "", "", "body"): "{% include 'title' %} {{ recipient.key }} {{ unsubscribe_url }}",
            ("e", "any", "", "", "options"): '{"sound": {{ code|tojson }}}',
        }
    )
    before = templates._made.cache_info().misses
    made = render_apart(words, "e", "email", {"code": "é<"}, ADA)
    assert made == Content("é< of a file", "é< of a file user:7 https://u", None, {"sound": "é<"})
    assert templates._made.cache_info().misses == before
    assert made == words.render("e", "email", "pt-BR", None, {"code": "é<"}, ADA)


def test_no_words_and_wrong_words() -> None:
    assert render_apart(TemplateSet(None), "e", "email", {}, ADA) is None
    with pytest.raises(TemplateFailed, match=r"row e/any\.body, line 2: 'nme' is undefined"):
        render_apart(rows(body="Dear\n{{ nme }}"), "e", "email", {}, ADA)
    with pytest.raises(TemplateFailed, match="it does too much"):
        render_apart(rows(body=UNPAID[0]), "e", "email", {}, ADA)


def test_a_process_that_takes_too_long_is_ended() -> None:
    with pytest.raises(TemplateFailed, match="it takes too long"):
        render_apart(rows(body="x"), "e", "email", {}, ADA, seconds=0.0)


def test_no_more_than_a_few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render_process, "TURN_SECONDS", 0.0)
    for _ in range(render_process.MOST_AT_ONCE):
        assert render_process._turns.acquire(blocking=False)
    try:
        with pytest.raises(TemplateFailed, match="too many previews at once"):
            render_apart(rows(body="x"), "e", "email", {}, ADA)
    finally:
        render_process._turns.release(render_process.MOST_AT_ONCE)
    made = render_apart(rows(body="x"), "e", "email", {}, ADA)
    assert made is not None
    assert made.body == "x"


def test_the_environment_of_the_server_stays_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its secrets are in it."""
    seen: list[dict[str, str]] = []
    run = subprocess.run

    def look(*args: Any, **named: Any) -> Any:
        seen.append(named["env"])
        return run(*args, **named)

    monkeypatch.setenv("SERENO_SECRET", "hunter2")
    monkeypatch.setattr(subprocess, "run", look)
    assert render_apart(rows(body="x"), "e", "email", {}, ADA) is not None
    assert [key for key in seen[0] if "SERENO" in key] == []


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not keep these limits")
@pytest.mark.parametrize(
    ("deed", "said"),
    [
        ("x = bytearray(300 * 1024 * 1024)", "MemoryError"),
        ("while True: pass", ""),
        ("open('never', 'wb', 0).write(b'x')", "File too large"),
    ],
    ids=["memory", "cpu", "files"],
)
def test_the_limits_of_the_process(tmp_path: Path, deed: str, said: str) -> None:
    code = f"from sereno.channels.render_process import limit; limit(cpu=1)\n{deed}\nprint('survived')"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert ended.returncode != 0
    assert said in ended.stderr
    assert "survived" not in ended.stdout
