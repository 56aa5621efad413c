"""The script of the page on bounces: it forwards a report to the API, or makes the mail server try again."""

import os
import subprocess
from pathlib import Path

import psycopg
import pytest

from sereno import Sereno
from sereno.channels.email import Email
from sereno.channels.return_path import ReturnPath
from tests.channels.test_email_bounces import SECRET, report
from tests.docs.pages import ROOT, only
from tests.facts import one
from tests.server.api.conftest import Served

PAGE = ROOT / "docs" / "recipes" / "email-bounces.md"
BASE = "bounces@mail.example.org"
DIGEST = "0123456789abcdef0123456789abcdef01234567"
TRY_AGAIN = 75


def forward(directory: Path, url: str, recipient: str, email: str) -> int:
    script = directory / "forward-report"
    script.write_text(only(PAGE, "bash"))
    environment = {"SERENO_REPORT_URL": url, "SERENO_REPORT_HEADERS": str(directory / "headers"), "no_proxy": "*"}
    command = ["bash", str(script), recipient]
    return subprocess.run(command, input=email.encode(), env={**os.environ, **environment}, check=False).returncode


@pytest.mark.slow
def test_the_script_forwards_reports(app: Sereno, connection: psycopg.Connection, tmp_path: Path) -> None:
    app.channels.add(Email(sender="shop@example.org", return_path=BASE, bounce_secret=SECRET))
    served = Served(app)
    try:
        url = f"{served.url}/api/v1/callbacks/email"
        recipient = ReturnPath(BASE, SECRET).address(DIGEST)
        (tmp_path / "headers").write_text(f"x-sereno-secret: {SECRET}\n")
        assert forward(tmp_path, url, recipient, report() + "x" * 3_000_000) == 0
        assert forward(tmp_path, url, BASE, report()) == 0, "a report about no email of ours is accepted, and dropped"
        (tmp_path / "headers").write_text("x-sereno-secret: another\n")
        assert forward(tmp_path, url, recipient, report()) == TRY_AGAIN
    finally:
        served.stop()
    assert forward(tmp_path, url, recipient, report()) == TRY_AGAIN, "the server is down"
    # The receipt waits for its email, which this test has not sent.
    assert one(connection, "select string_agg(provider_id, ',') from sereno.early_receipts") == f"{DIGEST}@example.org"
