from types import SimpleNamespace

import psycopg
from orders import app, kit, url

from sereno import Backoff, Context, RetryAfter

with psycopg.connect(url) as connection:
    connection.execute("create table books (account text, month text, amount integer)")


class AccountClosed(Exception): ...


async def fetch(account: str, month: str) -> SimpleNamespace:
    if account == "closed":
        raise AccountClosed
    if account == "away":
        raise ConnectionError
    return SimpleNamespace(status=429 if account == "busy" else 200, headers={"Retry-After": "90"}, amount=42)


# the block of the page


jobs = {account: reconcile.enqueue(account, "2026-11") for account in ("r42", "closed", "away", "busy")}
kit.drain()
states = {account: kit.job(job).state for account, job in jobs.items()}
assert states == {"r42": "succeeded", "closed": "dead", "away": "scheduled", "busy": "scheduled"}, states
assert kit.job(jobs["away"]).run_at > kit.job(jobs["busy"]).run_at
with psycopg.connect(url) as connection:
    assert connection.execute("select * from books").fetchall() == [("r42", "2026-11", 42)]
