"""The partner's API as it is documented: tokens, requests that conflict, links that expire, hostile files."""

import asyncio
import os
from pathlib import Path

import aiohttp
import pytest
from reconciliation import partner as client
from reconciliation import settings
from reconciliation.accounts import Account, save
from reconciliation.app import app
from reconciliation.database import Connection
from reconciliation.download import checked_link, download
from reconciliation.errors import UnsafeLink
from reconciliation.periods import month
from reconciliation.planning import MANUAL, account_of, start
from reconciliation.stand_ins import PartnerStandIn
from reconciliation.tests.steps import pause_schedules, rows, run_now

from sereno.testing.kit import Kit
from sereno.testing.provider import Fault

pytestmark = pytest.mark.slow


async def test_a_token_is_shared_and_renewed_before_it_ends(
    kit: Kit, connection: Connection, partner: PartnerStandIn
) -> None:
    await save(connection, [Account(f"a-{number}", f"m-{number}") for number in range(5)])
    partner.polls = 0
    await run_now(kit, connection, "a-0", "a-1", "a-2")
    await kit.adrain()
    assert (partner.calls["token", ""], partner.calls.total()) == (1, 10)
    # One that lives for no time is renewed before each call of the API; a download needs none.
    partner.token_life = 0
    await run_now(kit, connection, "a-3", "a-4")
    await kit.adrain()
    assert partner.calls["token", ""] == 1 + 2 * 2
    assert len(kit.jobs("reconciliation.reconcile", state="succeeded")) == 5


async def test_a_refused_token_is_replaced_once(kit: Kit, connection: Connection, partner: PartnerStandIn) -> None:
    await save(connection, [Account("a-1", "m-1"), Account("a-2", "m-2")])
    partner.polls = 0
    partner.troubles["m-2"] = "revoked"
    held = partner.held["poll", "m-1"] = asyncio.Event()
    (job,) = await run_now(kit, connection, "a-1")
    async with app.working():
        await asyncio.to_thread(kit.until, lambda: partner.calls["poll", "m-1"])
        partner.expire_tokens()
        held.set()
        await asyncio.to_thread(kit.until, lambda: kit.job(job).state == "succeeded")
        # The call that got a 401 was repeated with a new token, within its attempt.
        assert (kit.job(job).attempt, partner.calls["request", "m-1"], partner.calls["poll", "m-1"]) == (1, 1, 2)
        assert partner.calls["token", ""] == 2
        # A 401 with a new token is about the merchant.
        (revoked,) = await run_now(kit, connection, "a-2")
        await asyncio.to_thread(kit.until, lambda: kit.job(revoked).state == "dead")
    dead = kit.job(revoked)
    assert (dead.attempt, dead.error_type, dead.error_message) == (1, "Refused", "request: HTTP 401 with a new token")
    assert partner.calls["request", "m-2"] == 2


async def test_wrong_credentials_are_a_dead_letter_with_its_reason(
    kit: Kit, connection: Connection, partner: PartnerStandIn
) -> None:
    await save(connection, [Account(f"a-{number}", f"m-{number}") for number in range(10)])
    partner.client_secret = "another"  # noqa: S105 - of the stand-in
    jobs = await run_now(kit, connection, *(f"a-{number}" for number in range(10)))
    await kit.adrain()
    for job in map(kit.job, jobs):
        assert (job.state, job.attempt, job.error_type) == ("dead", 1, "BadCredentials")
        assert "check RECONCILIATION_CLIENT_ID" in (job.error_message or "")
        assert settings.CLIENT_SECRET not in str(job)
    # The partner limits requests for tokens: refused credentials are not sent again for each job.
    assert partner.calls == {("token", ""): 1}


async def test_an_outage_is_retried(
    kit: Kit, connection: Connection, partner: PartnerStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also an outage of the token endpoint: only a refusal of our credentials is permanent."""
    monkeypatch.setattr(client, "PATIENCE", aiohttp.ClientTimeout(total=0.5))
    await save(connection, [Account("a-1", "m-1")])
    await pause_schedules()
    (job,) = await run_now(kit, connection, "a-1")
    faults: list[Fault] = ["silence", "close", "half"]
    for fault in faults:
        partner.fault = fault
        assert not (await kit.adrain()).failed
        kit.travel_to_next()
    partner.fault = None
    kit.travel("1m")
    await kit.adrain()
    kit.travel("1m")
    await kit.adrain()
    assert kit.job(job).state == "succeeded"
    errors = "select error_message from sereno.attempts_v1 where job_id = %s and outcome = 'retry' order by number"
    assert await rows(connection, errors, job) == [
        ("authentication: TimeoutError",),
        ("authentication: ServerDisconnectedError",),
        ("authentication: ClientPayloadError",),
    ]


async def test_a_request_that_conflicts_continues_with_the_known_report(
    kit: Kit, connection: Connection, partner: PartnerStandIn
) -> None:
    """409 has the id of the request that is under way, or has none; then the partner is asked again later."""
    await save(connection, [Account("a-1", "m-1"), Account("a-2", "m-2")])
    partner.polls = 0
    await run_now(kit, connection, "a-1", "a-2")
    await kit.adrain()
    partner.troubles["m-2"] = "silent"
    kit.travel("1h")
    async with connection.transaction():
        for account in ("a-1", "a-2"):
            found = await account_of(connection, account)
            assert found is not None
            await start(connection, found, "reconcile", month(kit.now().date()), MANUAL)
    await kit.adrain()
    assert len(partner.reports) == 2
    by_hand = [job for job in kit.jobs("reconciliation.reconcile") if job.args["source"] == "manual"]
    assert [job.state for job in by_hand] == ["succeeded", "scheduled"]
    reasons = "select reason from sereno.attempts_v1 where job_id = %s"
    assert await rows(connection, reasons, by_hand[1].id) == [
        ("the partner already prepares this report, and did not return its id",)
    ]
    partner.recent.clear()
    kit.travel("31m")
    await kit.adrain()
    assert (kit.job(by_hand[1].id).state, len(partner.reports)) == ("succeeded", 3)


async def test_an_expired_link_is_replaced_by_a_new_one(
    kit: Kit, connection: Connection, partner: PartnerStandIn
) -> None:
    await save(connection, [Account("a-1", "m-1")])
    partner.polls = 0
    partner.troubles["m-1"] = "expired"
    (job,) = await run_now(kit, connection, "a-1")
    await kit.adrain()
    assert (kit.job(job).state, kit.job(job).attempt, partner.calls["poll", "m-1"]) == ("succeeded", 1, 2)


async def test_hostile_files_and_links_are_refused(
    kit: Kit, connection: Connection, partner: PartnerStandIn, tmp_path: Path
) -> None:
    files = dict.fromkeys(["bomb", "lying-bomb", "truncated", "no-gzip"], "BadReport")
    links = dict.fromkeys(
        ["https://reports.example/report.csv.gz", "http://169.254.169.254/latest/meta-data/", f"{partner.url}0/"],
        "UnsafeLink",
    )
    kinds = {**files, **links, "failed": "Refused"}
    accounts = {f"a-{number}": kind for number, kind in enumerate(kinds)}
    await save(connection, [Account(account, f"m-{account}") for account in accounts])
    partner.troubles = {f"m-{account}": kind for account, kind in accounts.items()}
    partner.polls = 0
    await run_now(kit, connection, *accounts)
    dead = (await kit.adrain()).failed
    assert {accounts[job.tenant or ""]: job.error_type for job in dead} == kinds
    assert {job.attempt for job in dead} == {1}
    # The downloaded files are retained for inspection. Nothing else was written.
    names = [name for _, _, names in os.walk(tmp_path) for name in names]
    assert sorted(names) == sorted(f"{job.id}.csv.gz" for job in dead if job.error_type == "BadReport")
    assert not await rows(connection, "select 1 from reconciliation.files")
    # The links are secrets while they are valid.
    told = str(await rows(connection, "select error_message, reason from sereno.jobs_v1"))
    assert "latest/meta-data" not in told
    assert "X-Amz-Signature" not in told + str(await rows(connection, "select * from sereno.logs"))


async def test_a_redirect_is_not_followed(kit: Kit, connection: Connection, partner: PartnerStandIn) -> None:
    await save(connection, [Account("a-1", "m-1")])
    partner.polls = 0
    partner.troubles["m-1"] = "moved"
    (job,) = await run_now(kit, connection, "a-1")
    await kit.adrain()
    assert kit.job(job).state == "scheduled"
    assert await rows(connection, "select error_message from sereno.attempts_v1 where job_id = %s", job) == [
        ("download: HTTP 302",)
    ]
    assert not [request for request in partner.log if request.path.startswith("/private")]


@pytest.mark.quick
async def test_a_host_that_is_allowed_is_not_called_in_a_private_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name may resolve to anything: `localhost` stands for a host whose address is private."""
    monkeypatch.setattr(settings, "DOWNLOAD_HOSTS", ("localhost",))
    with pytest.raises(UnsafeLink, match="localhost is in a private network"):
        await download("https://localhost/report.csv.gz?X-Amz-Signature=secret")


@pytest.mark.quick
def test_links_are_checked_before_they_are_called(monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests) -> None:
    monkeypatch.setattr(settings, "DOWNLOAD_HOSTS", ("*.s3.amazonaws.com", "*.ifood.com.br", "http://127.0.0.1:8700"))
    for link, is_allowed in (
        ("https://reports.s3.amazonaws.com/2026/r.csv.gz?X-Amz-Signature=a%2Fb", True),
        ("https://REPORTS.S3.AMAZONAWS.COM./r.csv.gz", True),
        ("https://files.ifood.com.br/r.csv.gz", True),
        ("http://127.0.0.1:8700/r.csv.gz", True),
        ("http://reports.s3.amazonaws.com/r.csv.gz", False),
        ("https://reports.s3.amazonaws.com:8443/r.csv.gz", False),
        ("https://reports.s3.amazonaws.com.evil.example/r.csv.gz", False),
        ("https://user@reports.s3.amazonaws.com/r.csv.gz", False),
        ("https://127.0.0.1:8700/r.csv.gz", False),
        ("http://127.0.0.1:8701/r.csv.gz", False),
        ("http://2130706433:8700/r.csv.gz", True),
        ("ftp://files.ifood.com.br/r.csv.gz", False),
        ("file:///etc/passwd", False),
        ("", False),
    ):
        with subtests.test(link=link):
            if is_allowed:
                assert checked_link(link)[0].url
            else:
                with pytest.raises(UnsafeLink):
                    checked_link(link)
