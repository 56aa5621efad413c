"""Templates: which one is used, what it renders, and what a hostile one can do."""

import json
import math
import re
import subprocess
import sys
import tracemalloc
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest

from sereno import Content, Recipient, Sereno
from sereno.channels.expo import Expo
from sereno.errors import ConfigurationError
from sereno.notifications.templates import sandbox_costs
from sereno.notifications.templates.lint import DeclaredEvent, LintFinding, declared, lint, sms_parts
from sereno.notifications.templates.operations import change, delete, place
from sereno.notifications.templates.rows import TemplatePlace
from sereno.notifications.templates.sandbox_costs import ITEMS_A_STEP, LARGEST, LETTERS_A_STEP, MOST_ITEMS, MOST_STEPS
from sereno.notifications.templates.templates import TemplateFailed, TemplateSet, compiled, directory_of
from tests.facts import auntil, one
from tests.notifications.conftest import Pager, Tender
from tests.notifications.templates import render_hostile
from tests.notifications.templates.hostile_templates import UNPAID_COPIES, UNPAID_HTML

ADA = Recipient(key="user:7", locale="pt-BR")
# Memory of a render, in bytes.
MOST_MEMORY = 64 * 1024 * 1024
# The most expensive single operation: a value of the largest size.
ONE_STEP = LARGEST // LETTERS_A_STEP + 2 * MOST_ITEMS // ITEMS_A_STEP


def rows(*sources: tuple[str, str], event: str = "e") -> TemplateSet:
    """Templates named like `email.pt.body`, with an optional suffix `@tenant`."""
    made: dict[TemplatePlace, str] = {}
    for name, text in sources:
        path, _, tenant = name.partition("@")
        words = path.split(".")
        locale = words[1] if len(words) == 3 else ""
        made[TemplatePlace(event, words[0], locale, tenant, words[-1])] = text
    templates = TemplateSet(None)
    templates.use_rows(made)
    return templates


def rendered(templates: TemplateSet, channel: str = "email", tenant: str | None = None, **payload: Any) -> Content:
    content = templates.render("e", channel, "pt-BR", tenant, payload, ADA)
    assert content is not None
    return content


# Rendering


def test_every_part_is_rendered_with_the_documented_names() -> None:
    templates = rows(
        ("email.title", "Tender {{ code }}\n for {{ recipient.key }}"),
        ("email.body", "{{ event }} {{ recipient.locale }} {{ unsubscribe_url }} {{ a < b }}{{ name }}\n"),
        ("email.html", "<p>{{ name }}</p>{% include 'body' %}"),
        ("email.options", '{"sound": {{ name|tojson }}}'),
    )
    ada = msgspec.structs.replace(ADA, unsubscribe_url="https://u")
    content = templates.render("e", "email", None, None, {"code": "T1", "name": "<i>", "a": 1, "b": 2}, ada)
    assert content == Content(
        "Tender T1 for user:7",
        "e pt-BR https://u True<i>",
        "<p>&lt;i&gt;</p>e pt-BR https://u True&lt;i&gt;",
        {"sound": "<i>"},
    )


def test_common_template_features_work() -> None:
    text = (
        "{% for item in items if item.n %}{{ loop.index }}/{{ loop.length }} {{ item.name|upper }};{% endfor %}"
        "{% set total = namespace(n=0) %}{% for item in items %}{% set total.n = total.n + item.n %}{% endfor %}"
        "{{ total.n }} {{ '%.2f'|format(3.14159) }} {{ '{:>4}'.format('x') }}"
        " {{ items|map(attribute='name')|join(', ') }}"
        "{% macro bold(text) %}*{{ text }}*{% endmacro %} {{ bold('b') }} {{ missing|default('-') }}"
        " {{ {'a': [1]}|tojson }} {{ items|groupby('n')|length }} {{ 'a' ~ 1 }} {{ who.get('k', 'none') }}"
    )
    content = rendered(rows(("any.body", text)), items=[{"name": "a", "n": 1}, {"name": "b", "n": 2}], who={})
    assert content.body == '1/2 A;2/2 B;3 3.14    x a, b *b* - {"a": [1]} 2 a1 none'


def test_a_missing_name_is_an_error_that_names_it_and_the_template() -> None:
    with pytest.raises(TemplateFailed, match=r"row e/email\.pt\.body, line 2: 'nme' is undefined"):
        rendered(rows(("email.pt.body", "Dear\n{{ nme }}")), name="Ada")


def test_options_are_a_json_object(subtests: pytest.Subtests) -> None:
    for text in ["[1]", "{", "{{ x }}", '{"a": NaN}', '{"a": "\\u0000"}']:
        with subtests.test(text=text), pytest.raises(TemplateFailed):
            rendered(rows(("any.body", "b"), ("any.options", text)), x='"')


def test_without_a_title_or_body_nothing_is_rendered() -> None:
    assert TemplateSet(None).render("e", "email", None, None, {}, ADA) is None
    assert rows(("any.options", "{}")).render("e", "email", None, None, {}, ADA) is None
    assert rows(("sms.body", "b")).render("e", "email", None, None, {}, ADA) is None


# Precedence


ORDER = [
    "email.pt-BR.body@acme",
    "any.pt-BR.body@acme",
    "email.pt.body@acme",
    "any.pt.body@acme",
    "email.body@acme",
    "any.body@acme",
    "email.pt-BR.body",
    "any.pt-BR.body",
    "email.pt.body",
    "any.pt.body",
    "email.body",
    "any.body",
]


def test_the_most_specific_row_is_used(subtests: pytest.Subtests) -> None:
    for first in range(len(ORDER)):
        with subtests.test(first=first):
            others = [("email.fr.body", "fr"), ("sms.body", "sms"), ("email.pt.body@other", "other")]
            templates = rows(*((name, name) for name in ORDER[first:]), *others)
            assert rendered(templates, tenant="acme").body == ORDER[first]


def test_files_come_last_and_an_unreadable_one_does_not_affect_the_others(tmp_path: Path) -> None:
    (tmp_path / "e").mkdir()
    for name in ("email.pt_BR.body", "email.body", "any.title"):
        (tmp_path / "e" / f"{name}.j2").write_text(f"{name} of a file")
    (tmp_path / "e" / "notes.txt").write_text("")
    (tmp_path / "e" / "sms.body.j2").write_bytes(b"\xff")
    templates = TemplateSet(tmp_path)
    assert templates.unknown_files == ["e/notes.txt"]
    assert rendered(templates) == Content("any.title of a file", "email.pt_BR.body of a file")
    templates.use_rows({TemplatePlace("e", "any", "", "", "body"): "row"})
    assert rendered(templates) == Content("any.title of a file", "row")
    templates.use_rows({})
    with pytest.raises(TemplateFailed, match=r"e/sms\.body\.j2: it cannot be read"):
        rendered(templates, "sms")
    assert rendered(templates, "expo").title == "any.title of a file"


def test_only_the_default_directory_of_templates_may_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert directory_of(None) is None
    with pytest.raises(ConfigurationError, match="no directory words"):
        directory_of("words")
    (tmp_path / "templates").mkdir()
    assert directory_of(None) == Path("templates")


# Hostile templates


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not keep these limits")
@pytest.mark.parametrize(
    "group",
    [pytest.param(group, marks=[] if group == "html" else pytest.mark.slow) for group in render_hostile.GROUPS],
)
def test_hostile_templates_are_stopped_by_steps_and_sizes_within_their_memory(group: str) -> None:
    """The budget has no deadline here, so that an operation that is not charged becomes visible.

    Some templates took gigabytes and twenty seconds. The process may take 160 MB, most of it for compiling.
    """
    command = [sys.executable, "-m", "tests.notifications.templates.render_hostile", group]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]
    results = [json.loads(line) for line in ended.stdout.splitlines()]
    wrong = [
        (text[:60], text[-60:], result)
        for (_, text, expected), result in zip(render_hostile.GROUPS[group], results, strict=True)
        if not re.search(expected, result["message"])
        or result["steps"] > MOST_STEPS + ONE_STEP
        # Stopped by the limit of the process: in a worker, it would have taken the memory.
        or "too much memory" in result["message"]
    ]
    assert wrong == []


@pytest.mark.slow
def test_every_copy_is_charged_by_its_size(monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests) -> None:
    monkeypatch.setattr(sandbox_costs, "LONGEST_SECONDS", math.inf)
    for part, text in [*(("body", text) for text in UNPAID_COPIES), *(("html", text) for text in UNPAID_HTML)]:
        with subtests.test(part=part, text=text[:40] + text[-60:]):
            templates = rows((f"any.{part}", text))
            with suppress(TemplateFailed):
                # Compiled first: compiling is not measured.
                compiled(f"row e/any.{part}", text, is_html=part == "html")
            tracemalloc.start()
            try:
                with pytest.raises(TemplateFailed, match=r"it does too much|too large|at most"):
                    rendered(templates, x="abc", xs=[1, 2], d={"a": 1})
                assert tracemalloc.get_traced_memory()[1] < MOST_MEMORY
            finally:
                tracemalloc.stop()


def test_the_deadline_stops_a_template_with_steps_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox_costs, "LONGEST_SECONDS", -1.0)
    with pytest.raises(TemplateFailed, match="it takes too long"):
        rendered(rows(("any.body", "{% for a in xs %}{% endfor %}")), xs=[1])


def test_a_template_that_times_out_repeatedly_is_disabled_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = 0
    run = sandbox_costs.run

    def counted(*args: Any) -> str:
        nonlocal tries
        tries += 1
        return run(*args)

    monkeypatch.setattr(sandbox_costs, "run", counted)
    templates = rows(("any.body", "{% for a in range(10000) %}" * 2 + "{% endfor %}" * 2))
    with monkeypatch.context() as patched:
        patched.setattr(sandbox_costs, "LONGEST_SECONDS", -1.0)
        for _ in range(3):
            with pytest.raises(TemplateFailed, match="it takes too long"):
                rendered(templates)
    for _ in range(100):
        with pytest.raises(TemplateFailed, match="is disabled for a minute"):
            rendered(templates)
    assert tries == 3
    templates.use_rows({TemplatePlace("e", "any", "", "", "body"): "better"})
    assert rendered(templates).body == "better"


def test_a_template_changes_nothing_for_the_next_one() -> None:
    payload: dict[str, Any] = {"xs": [1], "d": {"a": 1}}
    rendered(rows(("any.body", "{% set xs = [] %}{% set d = {} %}{{ d }}")), **payload)
    assert payload == {"xs": [1], "d": {"a": 1}}


# Lint


class Struct(msgspec.Struct, rename="camel"):
    """A payload with other names in JSON."""

    full_name: str


@dataclass
class Order:
    """A payload."""

    code: str
    event: str = ""


def messages(found: list[LintFinding], level: str) -> list[str]:
    return [f"{finding.template}: {finding.message}" for finding in found if finding.level == level]


def test_payload_fields_are_found_for_each_kind_of_type() -> None:
    assert declared([], Order).fields == frozenset({"code", "event"})
    assert declared([], Struct).fields == frozenset({"fullName"})
    assert declared([], dict[str, Any]).fields is None
    assert declared([], None).fields is None


def test_lint_checks_names_and_parts() -> None:
    templates = rows(
        ("email.html", "{{ code }}{% for x in nme %}{{ x }}{% endfor %}{{ event }}"),
        ("sms.pt.title", "{{ oops"),
        ("fax.body", "{{ code }}"),
        ("mail.options", "{}"),
    )
    found = lint(templates, {"e": declared(["email", "sms", "mail"], Order)})
    errors, warnings = messages(found, "error"), messages(found, "warning")
    assert errors[0].startswith("row e/email.html: 'nme' is not a field of the payload; it has code, event")
    assert errors[1].startswith("row e/sms.pt.title: line 1: unexpected end of template")
    assert "row e/fax.body: the event does not use the channel fax" in warnings
    assert "row e/email.html: 'event' does not refer to the field of the payload: the name is reserved" in warnings
    assert "e by mail: there are options and no title or body, so the options are not used" in warnings
    found = lint(rows(("email.html", "x")), None)
    assert [finding.message.partition(":")[0] for finding in found] == [
        "an email needs a title",
        "there is HTML and no text",
    ]
    assert messages(lint(rows(("sms.body", "x")), {}), "warning") == ["row e/sms.body: the code declares no event e"]


def test_lint_checks_sizes_with_and_without_a_payload() -> None:
    templates = rows(("any.title", "T" * 66), ("any.body", "{{ code }}" + "b" * 241))
    events = {"e": DeclaredEvent(["expo", "sms"], None)}
    largest = {"expo": Expo().largest}
    assert messages(lint(templates, events, largest), "warning") == [
        "e by expo: the title has 66 characters: after 65 it is cut off",
        "e by expo: the body has 241 characters: after 240 it is cut off",
        "e by sms: 3 parts of an SMS, each charged: 308 characters",
    ]
    found = lint(templates, events, largest, {"e": {"code": "é" * 2000}})
    assert "bytes, and expo accepts at most 4,096" in messages(found, "error")[0]
    found = lint(templates, events, largest, {"e": {}})
    assert "'code' is undefined" in messages(found, "error")[0]


SMS_PARTS = [
    ("", (1, True)),
    ("a" * 160, (1, True)),
    ("a" * 161, (2, True)),
    ("a" * 306, (2, True)),
    ("a" * 307, (3, True)),
    ("€" * 80, (1, True)),
    ("€" * 81, (2, True)),
    ("ã" * 70, (1, False)),
    ("ã" * 71, (2, False)),
    ("\N{GRINNING FACE}" * 35, (1, False)),
    ("\N{GRINNING FACE}" * 36, (2, False)),
]


def test_sms_parts_are_counted(subtests: pytest.Subtests) -> None:
    for text, parts in SMS_PARTS:
        with subtests.test(text=text[:1], parts=parts, length=len(text)):
            assert sms_parts(text) == parts


# Sending


@pytest.mark.slow
async def test_rows_and_files_precede_functions_but_not_those_of_a_channel(
    app: Sereno, connection: psycopg.Connection, tmp_path: Path
) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "any.title.j2").write_text("file {{ code }}")
    app.override(templates=str(tmp_path))
    pager = Pager()
    await app.database.arun(change(place("a", "pager", "title"), "row {{ code }}"))
    for name in ("a", "b", "c"):
        event = app.event(name, Tender, channels=[pager, "in_app"])

        @event.template()
        def _(tender: Tender, to: Recipient) -> Content:
            return Content(f"function {tender.code}")

        @event.template("in_app")
        def _(tender: Tender, to: Recipient) -> Content:
            return Content("its own")

        await event.anotify(Tender(f"T{name}"), to="u")
    await app.recipients.aupsert("u", {"pager": "p"})
    async with app.working():
        await auntil(lambda: one(connection, "select count(*) from sereno.inbox") == 3)
        await auntil(lambda: len(pager.sent) == 3)
    assert {message.title for message in pager.sent} == {"row Ta", "file Tb", "function Tc"}
    assert connection.execute("select distinct title from sereno.inbox").fetchall() == [("its own",)]


async def test_rows_are_read_once_a_minute_and_only_when_they_changed(app: Sereno) -> None:
    renderer = app.notifications.renderer
    where = place("a", "pager", "title")
    await renderer.refresh()
    await app.database.arun(change(where, "first"))
    await renderer.refresh()
    assert not renderer.templates.has("a")
    for text in ("first", "second"):
        await app.database.arun(change(where, text))
        renderer.forget()
        await renderer.refresh()
        assert renderer.templates.find("a", "pager", None, None)["title"].text == text
    known = renderer.templates.find("a", "pager", None, None)
    renderer.forget()
    await renderer.refresh()
    assert renderer.templates.find("a", "pager", None, None) is known
    assert await app.database.arun(delete(where))
    renderer.forget()
    await renderer.refresh()
    assert not renderer.templates.has("a")


async def test_a_failing_template_fails_only_its_own_delivery(app: Sereno, connection: psycopg.Connection) -> None:
    pager = Pager()
    event = app.event("a", Tender, channels=[pager])
    await app.database.arun(change(place("a", "pager", "body"), "{% if recipient.key == 'bad' %}{{ no }}{% endif %}x"))
    for key in ("bad", "good"):
        await app.recipients.aupsert(key, {"pager": key})
    async with app.working():
        await event.anotify(Tender("T1"))
        await auntil(lambda: one(connection, "select count(*) from sereno.deliveries where state = 'failed'") == 1)
        await auntil(lambda: [message.address for message in pager.sent] == ["good"])
    rendered = one(connection, "select error_message from sereno.deliveries where state = 'failed'")
    assert rendered == "TemplateFailed: row a/pager.body, line 1: 'no' is undefined"
