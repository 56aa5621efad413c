"""The work of one simulated hour: jobs of every kind, events, pauses, bulk operations and requests over HTTP."""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from uuid import NAMESPACE_URL, uuid5

import httpx
import psycopg

from sereno import Cron, NewJob, Sereno
from tests.facts import one
from tests.plain_http import NO_CERTIFICATES
from tests.soak.app import (
    TENANTS,
    Price,
    always_fails,
    app,
    fails_once,
    in_order,
    in_turn,
    plain,
    price_changed,
    rated,
    reconcile,
    two_at_once,
    waits_for_resume,
    with_step,
)

HOURS = 24
# Hours of the day in which operators act.
HOUR_OF_RETRY, HOUR_OF_CANCEL, HOUR_OF_PAUSE = 9, 15, 18
TO_CANCEL = "to-cancel"
# What a visitor of the dashboard and a client of the API read, and how often.
PATHS = ("/", "/jobs", "/schedules", "/api/v1/jobs?limit=50", "/api/v1/queues", "/api/v1/metrics")
HOURS_BETWEEN_VISITS = 4
# Fires of a schedule a day.
FIRES = 4
JOBS_OF_AN_ACCOUNT = 5


@dataclass(frozen=True)
class Load:
    """The work of a day. `drained`: jobs that are enqueued at once and drained, in each of the rounds."""

    plain: int = 12_000
    fails_once: int = 960
    always_fails: int = 240
    two_at_once: int = 720
    in_order: int = 720
    rated: int = 360
    in_turn: int = 360
    unique: int = 480
    with_step: int = 240
    delayed: int = 480
    cancelled: int = 120
    waiting: int = 240
    requests: int = 240
    schedules: int = 1_000
    recipients: int = 40
    events: int = 48
    drained: int = 20_000

    def scaled(self, share: float) -> "Load":
        """Return this share of the load; at least one of each in an hour."""
        return replace(
            self, **{field.name: max(HOURS, round(getattr(self, field.name) * share)) for field in fields(self)}
        )


class LoadGenerator:
    """Creates the work, and acts as an operator does."""

    def __init__(self, url: str, http: str, load: Load) -> None:
        self._load = load
        app.override(database_url=url)
        self._app: Sereno = app
        self._connection = psycopg.connect(url, autocommit=True)
        self._client = httpx.Client(base_url=http, verify=NO_CERTIFICATES, timeout=60)
        self._number = 0

    def close(self) -> None:
        self._client.close()
        self._connection.close()
        self._app.close()

    def prepare(self) -> None:
        """Create the schedules and the recipients."""
        schedules = [
            self._app.schedules.new(
                f"reconcile:{n}",
                reconcile.using(tenant=TENANTS[n % len(TENANTS)]).job(n),
                Cron(f"{n % 60} {n % (HOURS // FIRES)}-23/{HOURS // FIRES} * * *"),
                overlap="allow" if n % 2 else "skip",
            )
            for n in range(self._load.schedules)
        ]
        self._app.schedules.upsert_many(schedules)
        for n in range(self._load.recipients):
            self._app.recipients.upsert(f"user:{n}", {"expo": f"ExponentPushToken[{n:022}]"})

    def hour(self, day: int, hour: int) -> None:
        """Create the work of one hour."""
        self._app.enqueue_many(list(self._jobs(day, hour)))
        self._use_http(day, hour)
        for n in range(self._per_hour(self._load.events)):
            self._number += 1
            price_changed.notify(
                Price(f"P{n}", self._number), to=[f"user:{user}" for user in range(self._load.recipients)]
            )
        if hour == HOUR_OF_PAUSE:
            self._pause(day)

    def _jobs(self, day: int, hour: int) -> Iterator[NewJob]:
        load, accounts = self._load, f"{day}-{hour}"
        for task, amount in (
            (plain, load.plain),
            (fails_once, load.fails_once),
            (always_fails, load.always_fails),
            (with_step, load.with_step),
        ):
            yield from (task.job(n) for n in range(self._per_hour(amount)))
        # Keys of this hour only: their lanes and limiters must be deleted again.
        for keyed, amount in (
            (two_at_once, load.two_at_once),
            (in_order, load.in_order),
            (rated, load.rated),
        ):
            for n in range(self._per_hour(amount)):
                yield keyed.job(f"{accounts}-{n // JOBS_OF_AN_ACCOUNT}", n)
        for n in range(self._per_hour(load.in_turn)):
            yield in_turn.using(tenant=f"{TENANTS[n % len(TENANTS)]}-{day}").job(n)
        for n in range(self._per_hour(load.unique)):
            # Every second key exists already.
            yield plain.using(unique_key=f"{accounts}-{n // 2}", unique_for="6h").job(n)
        for n in range(self._per_hour(load.delayed)):
            yield plain.using(delay="90m", tags=["delayed"]).job(n)
        for n in range(self._per_hour(load.cancelled)):
            yield plain.using(delay="20h", tags=[TO_CANCEL]).job(n)

    def _use_http(self, day: int, hour: int) -> None:
        for n in range(self._per_hour(self._load.requests)):
            made = self._post("/jobs", {"task": plain.name, "arguments": {"n": n}}, key=f"{day}-{hour}-{n}")
            self._get(f"/api/v1/jobs/{made['id']}")
        if hour % HOURS_BETWEEN_VISITS == 0:
            for path in PATHS:
                self._get(path)
        yesterday = one(self._connection, "select sereno.now()") - timedelta(days=1)
        if hour == HOUR_OF_RETRY:
            self._in_background("retry", task=always_fails.name, states=["dead"], created_after=_text(yesterday))
        if hour == HOUR_OF_CANCEL:
            self._in_background("cancel", tag=TO_CANCEL, states=["scheduled"])

    def _pause(self, day: int) -> None:
        """Pause a queue, fill it and resume it."""
        self._post("/queues/paused/pause", {}, key=f"pause {day}")
        self._app.enqueue_many([waits_for_resume.job(n) for n in range(self._load.waiting)])
        self._post("/queues/paused/resume", {}, key=f"resume {day}")

    def _in_background(self, action: str, **selection: object) -> None:
        self._post(f"/jobs/{action}", {**selection, "in_background": True, "all": True}, key=None)

    def _get(self, path: str) -> None:
        _check(self._client.get(path))

    def _post(self, path: str, body: dict[str, object], key: str | None) -> dict[str, object]:
        # At random places of the index, as the keys of real clients are.
        headers = {} if key is None else {"Idempotency-Key": str(uuid5(NAMESPACE_URL, key))}
        response = self._client.post(f"/api/v1{path}", json=body, headers=headers)
        _check(response)
        found: dict[str, object] = response.json()
        return found

    @staticmethod
    def _per_hour(amount: int) -> int:
        return max(1, amount // HOURS)


def _check(response: httpx.Response) -> None:
    if not response.is_success:
        raise RuntimeError(f"{response.request.method} {response.url}: {response.status_code} {response.text[:300]}")


def _text(at: datetime) -> str:
    return at.isoformat()
