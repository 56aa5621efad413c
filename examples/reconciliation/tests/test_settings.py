"""Settings come from the environment, and README.md has a table of all of them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import reconciliation
from reconciliation import settings
from reconciliation.tests.test_views import COLUMNS

HOME = Path(reconciliation.__file__).parent
SHOW = """
from reconciliation import accounts, settings
from reconciliation.app import app
from reconciliation.job_types import RETRY
print(RETRY.retries, RETRY.delays, accounts.Account("a", "m").zone, settings.DOWNLOAD_HOSTS)
print(sorted((str(name), limit.numbers) for name, limit in app.registry.limits.items()))
"""


def run(**changed: str) -> "subprocess.CompletedProcess[str]":
    variables = {f"RECONCILIATION_{name}": value for name, value in changed.items()}
    environment = os.environ | variables | {"PYTHONPATH": str(HOME.parent)}
    return subprocess.run(  # noqa: PLW1510 - the exit code is looked at
        [sys.executable, "-c", SHOW], env=environment, capture_output=True, text=True
    )


@pytest.mark.slow
def test_attempts_limits_and_places_are_settings() -> None:
    shown = run(ATTEMPTS="3", DELAYS="1m,2m", ZONE="America/Manaus", AT_ONCE="7", RATE="5", DOWNLOAD_HOSTS="a.example")
    first, second = shown.stdout.splitlines()
    assert first == "2 (60.0, 120.0) America/Manaus ('a.example',)"
    assert "queue.reconciliation.concurrency" in second
    assert "7" in second
    wrong = run(MONTH="next")
    assert wrong.returncode == 1
    assert wrong.stderr.strip() == "RECONCILIATION_MONTH is 'next': it must be one of running, ended"


def test_every_setting_and_every_column_is_in_the_readme() -> None:
    readme = (HOME / "README.md").read_text()
    wanted = set(re.findall(r"RECONCILIATION_\w+", Path(settings.__file__).read_text()))
    assert set(re.findall(r"RECONCILIATION_\w+", readme)) == wanted
    missing = {name for names in COLUMNS.values() for name in names.split() if f"`{name}`" not in readme}
    assert missing == set()
    for table in COLUMNS:
        assert f"`{table}`" in readme
