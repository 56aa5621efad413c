"""`sereno template …`: list, preview, check and change message templates."""

import json
from pathlib import Path

import pytest

from sereno import Sereno
from sereno.notifications.event import Content
from tests.cli.conftest import Command
from tests.manual_worker import ManualWorker
from tests.notifications.conftest import Tender

APP = """
from dataclasses import dataclass
from sereno import Content, Sereno
from sereno.channels.expo import Expo

@dataclass
class Tender:
    code: str

app = Sereno()
event = app.event("tender.published", Tender, channels=[Expo(), "in_app"])

@event.template("in_app")
def _(tender, to):
    return Content(f"function {tender.code} for {to.key}")
"""


@pytest.fixture
def templates(tmp_path: Path) -> Path:
    """A project with a template file and code, in which the commands run."""
    directory = tmp_path / "templates" / "tender.published"
    directory.mkdir(parents=True)
    (directory / "any.title.j2").write_text("Tender {{ code }}\n")
    (tmp_path / "shop.py").write_text(APP)
    return directory


def put(sereno: Command, tmp_path: Path, text: str, *more: str, part: str = "body") -> str:
    (tmp_path / "template.j2").write_text(text)
    result = sereno("template", "set", "tender.published", "email", part, "template.j2", *more)
    assert result.exit_code == 0, result.stderr
    return str(result.stderr)


def test_a_template_is_set_shown_listed_and_deleted(
    sereno: Command, manual: ManualWorker, templates: Path, tmp_path: Path
) -> None:
    assert "tender.published/email.pt-br.body: written" in put(sereno, tmp_path, "Olá {{ code }}", "--locale", "pt_BR")
    assert "changed; workers see it within a minute" in put(sereno, tmp_path, "Oi {{ code }}", "--locale", "pt-BR")
    put(sereno, tmp_path, "Acme {{ code }}", "--tenant", "acme")
    shown = sereno("template", "show", "tender.published", "email", "--locale", "pt-BR").stdout
    assert "title  (tender.published/any.title.j2)\nTender {{ code }}\n" in shown
    assert "body  (row tender.published/email.pt-br.body)\nOi {{ code }}\n" in shown
    arguments = ("tender.published", "email", "--locale", "pt-BR", "--tenant", "acme", "-o", "json")
    assert json.loads(sereno("template", "show", *arguments).stdout)["body"]["source"] == "Acme {{ code }}"
    heading, *lines = [line.split("\t") for line in sereno("template", "list").stdout.splitlines()]
    assert heading[:7] == ["event", "channel", "locale", "tenant", "part", "from", "length"]
    assert [line[1:7] for line in lines] == [
        ["any", "", "", "title", "tender.published/any.title.j2", "18"],
        ["email", "", "acme", "body", "row", "15"],
        ["email", "pt-br", "", "body", "row", "13"],
    ]
    assert len(json.loads(sereno("template", "list", "nothing", "-o", "json").stdout)["items"]) == 0
    gone = sereno("template", "delete", "tender.published", "email", "body", "--locale", "pt-BR")
    assert "tender.published/email.pt-br.body: deleted." in gone.stderr
    assert sereno("template", "delete", "tender.published", "email", "body", "--locale", "pt-BR").exit_code == 7
    assert [(action, subject) for _, action, subject in manual.audit()] == [
        ("template.set", "template tender.published/email.pt-br.body"),
        ("template.set", "template tender.published/email.pt-br.body"),
        ("template.set", "template tender.published/email.body of acme"),
        ("template.delete", "template tender.published/email.pt-br.body"),
    ]


@pytest.mark.slow
def test_preview_uses_a_payload_or_the_last_event(
    sereno: Command, app: Sereno, templates: Path, tmp_path: Path
) -> None:
    put(sereno, tmp_path, "<p>{{ code }}, {{ recipient.key }}</p>", part="html")
    arguments = ("template", "preview", "tender.published", "email")
    shown = sereno(*arguments, "--payload", '{"code": "<T1>"}', "--recipient", "ada").stdout
    assert shown == "title\nTender <T1>\n\nhtml\n<p>&lt;T1&gt;, ada</p>\n\n"
    assert "No event" in sereno(*arguments, "--last").stderr
    event = app.event("tender.published", Tender, channels=["in_app"])
    event.notify(Tender("T1"), to="u")
    event.notify(Tender("T2"), to="u")
    assert json.loads(sereno(*arguments, "--last", "-o", "json").stdout)["title"] == "Tender T2"


@pytest.mark.slow
def test_preview_uses_template_functions_of_the_code(sereno: Command, app: Sereno, templates: Path) -> None:
    arguments = ("-a", "shop.py", "--payload", '{"code": "T1"}', "-o", "json")
    shown = sereno("template", "preview", "tender.published", "in_app", *arguments).stdout
    assert json.loads(shown)["title"] == Content("function T1 for user").title
    shown = sereno("template", "preview", "tender.published", "expo", *arguments).stdout
    assert json.loads(shown)["title"] == "Tender T1"
    wrong = sereno("template", "preview", "tender.published", "expo", "-a", "shop.py", "--payload", "{}")
    assert (wrong.exit_code, wrong.stdout) == (2, "")
    assert "missing required field" in wrong.stderr


@pytest.mark.slow
def test_lint_exits_with_1_when_a_template_is_wrong(sereno: Command, app: Sereno, templates: Path) -> None:
    fine = sereno("template", "lint", "-a", "shop.py", "-o", "table")
    assert (fine.exit_code, fine.stdout) == (0, "")
    assert "1 template, no problems." in fine.stderr
    (templates / "expo.body.j2").write_text("{{ amount }}")
    (templates / "expo.pt.title.j2").write_text("{{ code }}" + "x" * 70)
    result = sereno("template", "lint", "-a", "shop.py", "-o", "json")
    assert result.exit_code == 1
    found = [(item["level"], item["template"]) for item in json.loads(result.stdout)["items"]]
    assert found == [("error", "tender.published/expo.body.j2")]
    (templates / "expo.body.j2").unlink()
    result = sereno("template", "lint", "-a", "shop.py")
    assert (result.exit_code, "after 65 it is cut off" in result.stdout) == (0, True)
    assert "name your application with -a" in sereno("template", "lint").stderr


@pytest.mark.slow
def test_control_characters_of_a_template_are_not_printed(
    sereno: Command, app: Sereno, templates: Path, tmp_path: Path
) -> None:
    put(sereno, tmp_path, "\x1b[2Jevil {{ code }}")
    arguments = ("tender.published", "email")
    for result in (
        sereno("template", "show", *arguments),
        sereno("template", "preview", *arguments, "--payload", json.dumps({"code": "\x1b[2J"})),
    ):
        assert "evil" in result.stdout
        assert "\x1b" not in result.stdout


REFUSED = [
    (["show", "nothing", "email"], 7, "No template for nothing by email"),
    (["preview", "nothing", "email", "--payload", "{}"], 7, "No template for nothing by email"),
    (["preview", "tender.published", "email"], 2, "Pass either --payload JSON, or --last"),
    (
        ["preview", "tender.published", "email", "--payload", "{}", "--last"],
        2,
        "Pass either --payload JSON, or --last",
    ),
    (["preview", "tender.published", "email", "--payload", "[1]"], 2, "must be a JSON object"),
    (["preview", "tender.published", "email", "--payload", "{}"], 2, "any.title.j2, line 1: 'code' is undefined"),
    (["set", "tender.published", "email", "nonsense", "x"], 2, "'title', 'body', 'html', 'options'"),
    (["set", "tender.published", "email", "body", "none.j2"], 2, "none.j2"),
    (["set", "tender.published", "email", "body", "bad.j2"], 2, "unexpected end of template"),
    (["set", "tender.published", "email", "body", "binary.j2"], 2, "must be UTF-8 text"),
    (["set", "tender.published", "email", "body", "good.j2", "--locale", "../x"], 2, "is not a locale"),
    (["set", "../x", "email", "body", "good.j2"], 2, "use letters, digits"),
    (["delete", "tender.published", "email", "title"], 7, "No template row"),
    (["list", "--schema", "elsewhere"], 5, "sereno migrate"),
]


@pytest.mark.slow
def test_errors_of_template_commands_are_explained(
    sereno: Command, manual: ManualWorker, templates: Path, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    (tmp_path / "bad.j2").write_text("{{ code")
    (tmp_path / "binary.j2").write_bytes(b"\xff\xfe")
    (tmp_path / "good.j2").write_text("x")
    for command, code, message in REFUSED:
        with subtests.test(command=command):
            result = sereno("template", *command)
            assert (result.exit_code, result.stdout) == (code, "")
            assert message in result.stderr
            assert manual.audit() == []


def test_a_missing_template_directory_is_reported(sereno: Command, manual: ManualWorker) -> None:
    result = sereno("template", "lint", SERENO_TEMPLATES="nowhere")
    assert result.exit_code == 3
    assert "there is no directory nowhere" in result.stderr
