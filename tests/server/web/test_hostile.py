"""Hostile names and texts are shown as text on every page, and are never executed. All tests share their rows."""

import asyncio
from itertools import cycle
from urllib.parse import urlencode

import httpx
import psycopg
import pytest
from playwright.sync_api import Page

from sereno import Daily, Sereno
from sereno.jobs.job import JobOptions
from tests.facts import auntil, one
from tests.server.api.conftest import Ask, Served
from tests.server.api.world import Things, fill
from tests.server.web.shared_site import app, ask, connection, database_url, served
from tests.server.web.visit import Visits
from tests.server.web.world import addresses, pages

__all__ = ["app", "ask", "connection", "database_url", "served"]

PAYLOADS = [
    "<script>alert(1)</script>",
    "</title></textarea></style></script><script>alert(2)</script>",
    '"><img src=x onerror=alert(3)>',
    "' onmouseover=alert(4) autofocus onfocus=alert(5) x='",
    "<svg/onload=alert(6)><iframe srcdoc='<script>alert(7)</script>'>",
    "<a href=javascript:alert(8)>x</a><base href=//evil.example/>",
    "<style>*{background:url(//evil.example/x)}</style><link rel=stylesheet href=//evil.example>",
    "{{ 1337*1337 }}{% raw %}${1337*1337}#{1337*1337}<%= 1337*1337 %>",
    "%(count)s %s %n %d %% %(nothing)s {0} {name}",
    "javascript:alert(9)//&colon;&lt;script&gt;alert(10)&lt;/script&gt;",
    "]]><!--<img src=x onerror=alert(11)>--!><x>",
    "\u202egnp.exe\u2066\u200b\ufeff\u0301\u0301\u0301 \U0001f469\u200d\U0001f4bb \u2028\u2029",
    "a/../../b?c=d&e=f#g+h%2e%2e\\i;j,k|l`m$(n)",
    '"}],"do":"DELETE tokens/1",[{"x":"',
]
DEAD = "select count(*) from sereno.history where state = 'dead'"
# Elements and attributes that no page contains by itself.
ACTIVE_CONTENT = (
    "script:not([src^='./static/']), iframe:not([sandbox='']), iframe[srcdoc], img, object, embed, base, main link, "
    "main style, foreignObject, meta[http-equiv], [onerror], [onload], [onfocus], [onmouseover], [onclick], [style], "
    "a[href^='javascript:' i]"
)


class Hostile(Things):
    """Rows with hostile names, except for alert rules, whose names have only letters and digits."""

    def named(self, what: str) -> str:
        return f"rule-{PAYLOADS.index(self.canary)}" if what == "rule" else super().named(what)


@pytest.fixture(scope="module")
def hostile(app: Sereno, ask: Ask, connection: psycopg.Connection) -> list[Hostile]:
    """Create rows of every kind with hostile names, and dead jobs with hostile errors."""
    tenants = [Hostile(f"{payload} t", payload) for payload in PAYLOADS]
    fill(app, *tenants)
    admin = ask("admin")
    for things in tenants:
        _fill_more(app, admin, things)
    asyncio.run(_create_dead_jobs(app, connection))
    return tenants


def _fill_more(app: Sereno, admin: httpx.Client, things: Hostile) -> None:
    """Create directly the rows of `fill_over_http`, because a name in a path cannot contain a slash."""
    key = things.named("schedule")
    job = app.new_job("work", b'{"text": "x"}', JobOptions(tenant=things.tenant))
    app.schedules.upsert(key, job, Daily("03:00", tz="Europe/Riga"))
    app.schedules.run(key)
    found = admin.get("/deliveries", params={"tenant": things.tenant, "channel": "pager"}).json()["items"]
    things.delivery = found[0]["id"]
    many = {"ids": [things.ended], "tenant": things.tenant, "in_background": True, "reason": things.named("reason")}
    things.operation = admin.post("/jobs/retry", json=many).json()["id"]


async def _create_dead_jobs(app: Sereno, connection: psycopg.Connection) -> None:
    """Create failed jobs; then rename them, because another program may write other names into the tables."""

    @app.task(queue="failing", retry=0)
    def fail(text: str) -> None:
        raise ValueError(text)

    for payload in PAYLOADS:
        fail.using(tenant=payload, tags=[payload]).enqueue(payload)
    async with app.working({"failing": 2}):
        await auntil(lambda: one(connection, DEAD) == len(PAYLOADS))
    await app.database.aclose()
    renamed = "set task = tenant || ' task', queue = tenant || ' queue' where tenant is not null"
    connection.execute(f"update sereno.history {renamed}".encode())
    connection.execute(f"update sereno.jobs {renamed}".encode())


@pytest.mark.slow
def test_no_page_executes_a_name(app: Sereno, hostile: list[Hostile], browse: Visits, site: Served) -> None:
    """All pages in a browser, each with the rows of another name; the lists among them show all names."""
    page = browse("")
    names = cycle(hostile)
    for registered in pages(app):
        for address, _ in addresses(registered, next(names)):
            _visit(page, f"{site.url}{address}")


@pytest.mark.slow
def test_query_parameters_are_shown_as_text(app: Sereno, hostile: list[Hostile], browse: Visits, site: Served) -> None:
    """The parameters of a URL can be as hostile as any name."""
    page = browse("")
    browse.forgive("status of (400|404|422)")
    names = ("after", "before", "id", "job", "key", "name", "next", "q", "range", "state", "tenant")
    for registered in pages(app):
        for payload in ("".join(PAYLOADS[:3]), "".join(PAYLOADS[3:8])):
            _visit(
                page,
                f"{site.url}{registered.path}?{urlencode(dict.fromkeys(names, payload))}",
                expected=(200, 400, 404, 422),
            )


def _visit(page: Page, url: str, expected: tuple[int, ...] = (200,)) -> None:
    answer = page.goto(url)
    assert answer is not None
    assert answer.status in expected, (url, answer.status, page.inner_text("body"))
    assert page.locator(ACTIVE_CONTENT).count() == 0, (
        url,
        page.locator(ACTIVE_CONTENT).first.evaluate("each => each.outerHTML"),
    )
    assert "1787569" not in page.content(), url


@pytest.mark.slow
def test_every_page_escapes_every_hostile_name(app: Sereno, hostile: list[Hostile], ask: Ask, served: Served) -> None:
    """All pages with all names, without a browser."""
    client = ask("admin")
    client.base_url = httpx.URL(served.url)
    for registered in pages(app):
        for things in hostile:
            for address, _ in addresses(registered, things):
                answer = client.get(address)
                assert answer.status_code in (200, 303), (address, answer.status_code, answer.text)
                for raw in ("<script>alert", "<img src=x", "<svg/onload", "<a href=javascript", "<style>*", "1787569"):
                    assert raw not in answer.text, (address, raw)
