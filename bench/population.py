"""A population of schedules: 500 rules in 20 zones, and any number of rows that share them.

The rows are written with one statement, as `app.schedules` writes them: a row fires at an instant of its rule, shifted
to its own place inside the rule's spread. `app.schedules` derives that place from the key; here it is chosen, so that
the wanted number of rows is due at a moment.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate, count
from math import gcd
from typing import Any

import psycopg

from bench.tasks import ACCOUNT, MONTH, QUEUE
from sereno.duration import Duration
from sereno.schedules.rules.instants import InstantRule, compile_rule
from sereno.schedules.rules.when import Cron, Daily, Every, When, encode, microseconds
from sereno.zones import DAY

ZONES = (
    "Africa/Cairo",
    "Africa/Lagos",
    "America/Bogota",
    "America/Chicago",
    "America/Los_Angeles",
    "America/Mexico_City",
    "America/New_York",
    "America/Sao_Paulo",
    "America/St_Johns",
    "Asia/Dubai",
    "Asia/Kolkata",
    "Asia/Shanghai",
    "Asia/Tokyo",
    "Australia/Lord_Howe",
    "Australia/Sydney",
    "Europe/Berlin",
    "Europe/Lisbon",
    "Europe/London",
    "Pacific/Auckland",
    "UTC",
)

# Each with the time from one instant to the next, which is the spread. None is shorter than 15 minutes: a schedule that
# has fired is not due again before the measurement is over.
CRONS = (
    ("*/15 * * * *", "15m"),
    ("*/20 * * * *", "20m"),
    ("7,37 * * * *", "30m"),
    ("0 * * * *", "1h"),
    ("45 * * * *", "1h"),
    ("10 */2 * * *", "2h"),
    ("0 */6 * * *", "6h"),
    ("15 8,20 * * *", "12h"),
    ("0 3 * * *", "1d"),
    ("30 9 * * *", "1d"),
)
DAILIES = ("00:00", "03:00", "06:30", "09:00", "12:00", "15:30", "18:00", "22:15")
INTERVALS = ("15m", "20m", "30m", "1h", "2h", "4h", "12h")

# A row's place is its number times this share of the rows. As in real tables, neighbouring rows are due at unrelated
# times, and the rows that are due in a period are spread over the whole table.
GOLDEN = 0.618034

# Of `load_in_parts`: rows of one statement, and connections.
PART = 500_000
CONNECTIONS = 2

# A row is due at its place in a slot, or, when its place is in none, after all of them.
LOAD = """
with clock as materialized (select sereno.now() as now),
rule as (
    select number - 1 as number, text::jsonb as rule, first, second, third, spread
    from unnest(%(texts)s::text[], %(firsts)s::bigint[], %(seconds)s::bigint[], %(thirds)s::bigint[],
                %(spreads)s::bigint[]) with ordinality as r(text, first, second, third, spread, number)
),
slot as (
    select * from unnest(%(slot_places)s::bigint[], %(slot_rows)s::bigint[], %(slot_ats)s::bigint[],
                         %(slot_lengths)s::bigint[]) as s(place, rows, at, length)
),
each as (
    select number, number * %(stride)s %% %(rows)s as place
    from generate_series(%(first)s::bigint, %(last)s::bigint) as number
),
wanted as (
    select each.number, rule, first, second, third, each.place * %(stride)s * 1000 %% spread as anywhere,
           slot.at + (each.place - slot.place) * slot.length / slot.rows / 1000 * 1000 as at
    from each
    join rule on rule.number = each.number %% cardinality(%(texts)s::text[])
    left join slot on each.place >= slot.place and each.place < slot.place + slot.rows
),
planned as (
    select number, rule, at, anywhere, case
               when at is not null then case when third <= at then third when second <= at then second else first end
               when first + anywhere > %(end)s then first
               when second + anywhere > %(end)s then second
               else third end as instant
    from wanted
)
insert into sereno.schedules (key, rule, shift, next_run_at, task, queue, tenant, args, overlap, created_at, changed_at)
select 'close:' || number, rule, coalesce(at - instant, anywhere), sereno.instant(coalesce(at, instant + anywhere)),
       'noop', %(queue)s, 't' || number %% nullif(%(tenants)s, 0),
       jsonb_build_object('account', %(account)s || number, 'month', %(month)s::text), 'allow',
       (select now from clock), (select now from clock)
from planned
order by number
"""


@dataclass(frozen=True)
class Slot:
    """`rows` schedules are due, evenly spread over `length` from `at` on; both in microseconds."""

    rows: int
    at: int
    length: int

    @property
    def end(self) -> int:
        return self.at + self.length


def load(connection: psycopg.Connection, rows: int, slots: Sequence[Slot], tenants: int = 0) -> None:
    """Write the rows, in turn for each tenant. The slots must be in order and within 15 minutes."""
    connection.execute(LOAD, _parameters(rows, slots, tenants) | {"first": 1, "last": rows})
    connection.execute("vacuum analyze sereno.schedules")


def load_in_parts(url: str, rows: int, slots: Sequence[Slot]) -> None:
    """Write very many rows, over two connections. A checkpoint after each part keeps the write-ahead log short."""
    parameters = _parameters(rows, slots)

    def load_part(first: int) -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(LOAD, parameters | {"first": first, "last": min(rows, first + PART - 1)})
            connection.execute("checkpoint")

    with ThreadPoolExecutor(CONNECTIONS) as threads:
        list(threads.map(load_part, range(1, rows + 1, PART)))
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("vacuum analyze sereno.schedules")


def set_clock(connection: psycopg.Connection, at: int) -> None:
    """Move the database's clock of sereno to `at`; it continues from there."""
    connection.execute(
        "insert into sereno.clock (ahead) values (sereno.instant(%(at)s) - now()) "
        "on conflict (one_row) do update set ahead = excluded.ahead",
        {"at": at},
    )


def rules() -> list[tuple[When, Duration]]:
    """Return every rule with its spread."""
    result: list[tuple[When, Duration]] = []
    for zone in ZONES:
        result += [(Cron(text, tz=zone, spread=spread), spread) for text, spread in CRONS]
        result += [(Daily(at, tz=zone, spread="1d"), "1d") for at in DAILIES]
        result += [(Every(every, count_from="clock", tz=zone, spread=every), every) for every in INTERVALS]
    return result


def _parameters(rows: int, slots: Sequence[Slot], tenants: int = 0) -> dict[str, Any]:
    sizes = {"rows": rows, "end": slots[-1].end, "stride": _stride(rows), "tenants": tenants}
    return _rules(slots[0].at) | _slots(slots) | sizes


def _stride(rows: int) -> int:
    """Return a number that has no divisor in common with `rows`, so that every place belongs to one row."""
    return next(number for number in count(int(rows * GOLDEN)) if gcd(number, rows) == 1)


def _rules(begin: int) -> dict[str, Any]:
    """Return the parameters of the rules: for each one the last instant up to `begin`, and the next two."""
    instants = [_instants(compile_rule(when), begin) for when, _ in rules()]
    firsts, seconds, thirds = map(list, zip(*instants, strict=True))
    return {
        "texts": [encode(when).decode() for when, _ in rules()],
        "spreads": [microseconds(spread) for _, spread in rules()],
        "firsts": firsts,
        "seconds": seconds,
        "thirds": thirds,
        "queue": QUEUE,
        "account": ACCOUNT.format(0)[:-8],
        "month": MONTH,
    }


def _instants(rule: InstantRule, begin: int) -> tuple[int, int, int]:
    first = rule.latest(begin - 3 * DAY, begin, begin)
    assert first is not None
    second = rule.next(first, first)
    assert second is not None
    third = rule.next(second, second)
    assert third is not None
    return first, second, third


def _slots(slots: Sequence[Slot]) -> dict[str, list[int]]:
    counts = [slot.rows for slot in slots]
    return {
        "slot_places": [0, *accumulate(counts)][:-1],
        "slot_rows": counts,
        "slot_ats": [slot.at for slot in slots],
        "slot_lengths": [slot.length for slot in slots],
    }
