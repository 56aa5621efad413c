"""A read-only server on a hot standby: a real PostgreSQL that replays the WAL of another one."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import psycopg
import pytest

from sereno import Sereno
from sereno.access.operations import create
from sereno.database.embedded import EmbeddedPostgres
from sereno.database.embedded.programs import account_for, wheel_bin_dir
from sereno.server import asgi
from sereno.server.web.page_request import SECTIONS
from tests.facts import one, until
from tests.plain_http import NO_CERTIFICATES
from tests.serving import Serving

pytestmark = pytest.mark.slow


@pytest.fixture
def directory() -> Iterator[Path]:
    """A short path, because it is also that of sockets; readable for the account of the servers."""
    made = Path(tempfile.mkdtemp(prefix="sereno-standby-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@pytest.fixture
def primary(directory: Path) -> Iterator[Sereno]:
    (directory / "primary").mkdir()
    with (
        EmbeddedPostgres(directory / "primary", parameters={"wal_level": "replica", "max_wal_senders": "4"}) as server,
        closing(Sereno(server.url)) as app,
    ):
        app.migrate()
        yield app


@pytest.fixture
def standby_url(directory: Path, primary: Sereno) -> Iterator[str]:
    home = directory / "standby"
    (home / "postgres").mkdir(parents=True)
    account = account_for(directory / "primary" / "postgres")
    os.chown(home / "postgres", account.uid, account.gid)
    (home / "postgres").chmod(0o700)
    where = parse_qs(urlsplit(primary.url).query)
    arguments = ["-h", where["host"][0], "-p", where["port"][0], "-U", "postgres", "-D", "data", "-R", "-X", "stream"]
    made = account.run(wheel_bin_dir() / "pg_basebackup", *arguments, "--checkpoint=fast", cwd=home / "postgres")
    assert made.returncode == 0, made.stdout
    with EmbeddedPostgres(home, parameters={"hot_standby": "on"}) as server:
        yield server.url


def test_a_read_only_server_shows_all_pages_from_a_hot_standby(primary: Sereno, standby_url: str) -> None:
    work = primary.task(name="work")(lambda: None)
    job = work.enqueue()
    token = primary.database.run(create("ann", "viewer", actor="test")).secret
    with psycopg.connect(standby_url, autocommit=True) as connection:
        assert one(connection, "select pg_is_in_recovery()")
        until(lambda: one(connection, "select count(*) from sereno.tokens") == 1)
    with closing(Sereno(standby_url, read_only=True)) as app:
        serving = Serving(asgi(app), log_level="error")
        headers = {"Authorization": f"Bearer {token}"}
        with httpx.Client(base_url=serving.url, headers=headers, verify=NO_CERTIFICATES, timeout=30) as client:
            for path, *_ in SECTIONS:
                assert client.get(f"/{path}").status_code == 200, path
            assert client.get(f"/api/v1/jobs/{job.id}").json()["job"]["state"] == "ready"
            later = work.enqueue()
            until(lambda: client.get(f"/api/v1/jobs/{later.id}").status_code == 200)
        serving.stop()
