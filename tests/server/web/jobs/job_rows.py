"""Jobs for the tests of their pages."""

from sereno import Backoff, Sereno
from sereno.database.driver import drive
from sereno.jobs import operations
from sereno.jobs.filters import JobFilter

HOSTILE = '<img src=x onerror="alert(1)">\'{{ 7*7 }}'


def create_jobs(app: Sereno) -> list[int]:
    """Jobs of two tenants and without one; two are cancelled."""

    @app.task(retry=Backoff(0))
    def charge(account: int, api_token: str = "", to: str = "") -> None: ...

    @app.task(queue="reports")
    def close_day(day: str) -> None: ...

    made = [
        charge.using(tenant="ann", tags=["eu", "a b"], trace="t-1").enqueue(1, "hunter2", "ann@shop.example").id,
        charge.using(tenant="bob").enqueue(2, "canary-of-bob").id,
        close_day.using(tags=[HOSTILE], unique_key=HOSTILE).enqueue(HOSTILE).id,
        charge.using(tenant="ann").enqueue(4).id,
    ]
    drive(operations.cancel(JobFilter(ids=[made[0], made[2]]), reason=HOSTILE, actor="test"), app.database.run)
    return made
