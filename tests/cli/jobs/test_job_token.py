"""`sereno job token` signs a token for one job."""

from typing import Any

import pytest

from sereno import Sereno
from sereno.jobs.job_token import read_token
from tests.cli.conftest import Command

SECRET = "s" * 32


def test_a_token_is_signed_for_a_job_that_exists(sereno: Command, app: Sereno, monkeypatch: pytest.MonkeyPatch) -> None:
    @app.task
    def work() -> None: ...

    job: Any = work.enqueue().id
    refused = sereno("job", "token", job)
    assert refused.exit_code != 0
    assert "SERENO_SECRET" in refused.stderr
    monkeypatch.setenv("SERENO_SECRET", SECRET)
    made = sereno("job", "token", job, "--valid-for", "15m")
    reader = read_token(SECRET, made.stdout.strip(), 0)
    assert reader is not None
    assert reader.job == job
    assert sereno("job", "token", job + 1).exit_code != 0
    assert sereno("job", "token", job, "--valid-for", "3y").exit_code != 0
