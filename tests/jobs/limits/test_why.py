"""`why` for jobs with limits: one test for each reason."""

from typing import Any

import psycopg
import pytest
from click.testing import CliRunner

from sereno import Limit, Rate, Sereno
from sereno.cli.main import main
from sereno.database.driver import drive
from sereno.error_text import describe
from sereno.jobs import operations as jobs
from sereno.jobs.attempt import Settlement
from sereno.jobs.filters import JobFilter
from sereno.jobs.limits import store as limits
from sereno.jobs.queries.why import why
from tests.database.plans import nodes, plan
from tests.facts import advance
from tests.jobs.job_steps import do
from tests.jobs.limits.lane_steps import Claimer, keys, put, set_limit

Connection = psycopg.Connection[Any]

SOON = "It should start within moments; if it does not, run `sereno doctor`."


def _why(app: Sereno, job_id: int) -> str:
    return "\n".join(app.database.run(why(job_id)))


@pytest.fixture
def claimer(connection: Connection) -> Claimer:
    return Claimer(connection)


def test_why_names_the_jobs_that_hold_every_slot_of_a_key(
    app: Sereno, connection: Connection, claimer: Claimer
) -> None:
    set_limit(connection, "sync.concurrency", Limit(2))
    first, second, third, fourth = put(connection, keys(("sync.concurrency", "r42")), 4)
    assert claimer.take() == [first, second]
    advance(connection, 7200)
    text = _why(app, third)
    assert text.startswith(
        "The limit sync.concurrency allows 2 at once for the key 'r42', and 2 are running: "
        f"jobs {first} and {second} (task work, running for 2 h, worker session {claimer.session})."
    )
    assert "ahead" not in text
    assert "1 job with the same keys is ahead of it." in _why(app, fourth)
    (other,) = put(connection, keys(("sync.concurrency", "r43")))
    assert _why(app, other) == SOON


def test_why_lists_the_slots_of_each_worker_up_to_a_bound(
    app: Sereno, connection: Connection, claimer: Claimer
) -> None:
    set_limit(connection, "l", Limit(5))
    ids = put(connection, keys(("l", "")), 6)
    other = Claimer(connection)
    assert claimer.take(1) == [ids[0]]
    assert other.take(4) == ids[1:5]
    claimer.take()
    text = _why(app, ids[5])
    assert "The limit l allows 5 at once, and 5 are running: " in text
    assert f"job {ids[0]} (task work, running for" in text
    assert f"worker session {other.session}) and 2 more." in text


def test_why_names_a_limit_of_zero(app: Sereno, connection: Connection, claimer: Claimer) -> None:
    set_limit(connection, "l", Limit(0))
    (job,) = put(connection, keys(("l", "k")))
    assert claimer.take() == []
    assert "The limit l for the key 'k' admits no jobs: it is 0." in _why(app, job)


def test_why_says_that_a_free_slot_will_be_assigned(app: Sereno, connection: Connection, claimer: Claimer) -> None:
    set_limit(connection, "l", Limit(1))
    _, second = put(connection, keys(("l", "k")), 2)
    claimer.wake()
    (job,) = claimer.claim().jobs
    claimer.finish([job])
    text = _why(app, second)
    assert "allows 1 at once for the key 'k', and 0 are running: a worker will assign the free slots within" in text


def test_why_says_when_the_next_job_under_a_rate_may_start(
    app: Sereno, connection: Connection, claimer: Claimer
) -> None:
    set_limit(connection, "ifood", Rate(1, per="2d"))
    ids = put(connection, keys(("ifood", "")), 4)
    assert claimer.take() == ids[:1]
    claimer.take()
    # Half an hour less than a day: the text does not change within that time.
    advance(connection, 23.5 * 3600)
    text = _why(app, ids[3])
    assert "The limit ifood allows 1 start in 2 d, and 0.5 are left: the next one may start in 1 d." in text
    assert "2 jobs with the same keys are ahead of it, so it starts in 5 d at the earliest." in text
    advance(connection, 25 * 3600)
    assert "1.0 are left: the next one may start now." in _why(app, ids[1])


def test_why_names_the_units_of_a_job_under_a_rate(app: Sereno, connection: Connection, claimer: Claimer) -> None:
    set_limit(connection, "pages", Rate(10, per="1h", burst=5))
    first, second = put(connection, keys(("pages", "k", 5)), 2)
    assert claimer.take() == [first]
    assert "allows 10 starts in 1 h for the key 'k' (this one takes 5), and 0." in _why(app, second)


def test_why_says_until_when_a_limit_is_closed_and_how_to_open_it(
    app: Sereno, connection: Connection, claimer: Claimer
) -> None:
    set_limit(connection, "ifood", Rate(100))
    do(connection, limits.close("ifood", "r1", 3600))
    (job,) = put(connection, keys(("ifood", "r1")))
    assert claimer.take() == []
    text = _why(app, job)
    assert text.startswith("The limit ifood is closed for the key 'r1' until 20")
    assert "sereno limit open ifood --key r1" in text
    assert "the next one may start" not in text


def test_why_names_an_undeclared_limit(app: Sereno, connection: Connection, claimer: Claimer) -> None:
    (job,) = put(connection, keys(("lost", "k")))
    assert claimer.take() == []
    text = _why(app, job)
    assert text.startswith("The limit lost that it uses is not declared")
    assert "sereno limit set lost" in text


def test_why_accepts_a_limit_that_was_given_with_the_job(app: Sereno, connection: Connection, claimer: Claimer) -> None:
    (job,) = put(connection, {"limits": [["own", "", 1, {"slots": 1}]]})
    assert _why(app, job) == SOON
    assert claimer.take() == [job]


def test_why_names_a_limit_of_the_whole_queue(app: Sereno, connection: Connection, claimer: Claimer) -> None:
    set_limit(connection, "queue.default.concurrency", Limit(1), queue="default")
    first, second, third = put(connection, None, 3)
    assert claimer.take() == [first]
    message = "The limit queue.default.concurrency allows 1 at once for its whole queue 'default', and 1 is running: "
    assert message + f"job {first} (task work" in _why(app, second)
    assert "1 job is ahead of it in its queue" in _why(app, third)
    (keyed,) = put(connection, keys(fair="t1"))
    assert message in _why(app, keyed)
    (elsewhere,) = put(connection, None, queue="elsewhere")
    assert "limit" not in _why(app, elsewhere)


def test_why_names_the_head_of_an_order(app: Sereno, connection: Connection, claimer: Claimer) -> None:
    head, second, third = put(connection, keys(order="acct"), 3)
    assert _why(app, head) == SOON
    assert f"job {head} (task work), is ready. To see why it does not run: sereno why {head}" in _why(app, second)
    claimer.wake()
    (job,) = claimer.claim().jobs
    advance(connection, 7200)
    assert _why(app, third) == (
        "It runs in order, and 2 jobs are before it with the order key 'acct': "
        f"the first, job {head} (task work), is running for 2 h, by worker session {claimer.session}."
    )
    assert "2 jobs with its order key wait until it has ended ('acct')." in _why(app, head)
    claimer.finish([job], Settlement("retry", delay=600.0, error=describe(OSError("no route"))))
    assert "is scheduled for 20" in _why(app, second)
    assert f"To see why: sereno why {head}" in _why(app, second)
    text = _why(app, head)
    assert "OSError: no route" in text
    assert "2 jobs with its order key wait until it has ended ('acct')." in text


def test_why_names_a_dead_letter_that_blocks_its_order_key(
    app: Sereno, connection: Connection, claimer: Claimer
) -> None:
    head, second, third = put(connection, keys(order="acct", blocks=True), 3)
    claimer.wake()
    (job,) = claimer.claim().jobs
    claimer.finish([job], Settlement("dead", reason="failed", error=describe(OSError("x")), failed=1))
    for waits in (second, third):
        text = _why(app, waits)
        assert text.startswith(f"The dead letter {head} (task work) blocks its order key 'acct'")
        assert f"sereno job retry {head}" in text
        assert f"sereno job delete {head}" in text
    drive(jobs.delete(JobFilter(ids=[head])), app.database.run)
    assert _why(app, second) == SOON


def test_why_counts_the_fair_keys_in_front(app: Sereno, connection: Connection, claimer: Claimer) -> None:
    put(connection, keys(fair="t1"), 3)
    claimer.take(2)
    (behind,) = put(connection, keys(fair="t1"))
    put(connection, keys(fair="t2"))
    put(connection, keys(fair="t3"))
    connection.execute("insert into sereno.weights (key, weight) values ('t1', 2)")
    claimer.wake()
    connection.execute("update sereno.lanes set turn = 0 where fair = 't2'")
    connection.execute("update sereno.lanes set turn = 1 where fair = 't3'")
    connection.execute("update sereno.lanes set turn = 9 where fair = 't1'")
    text = _why(app, behind)
    assert "1 job with the same keys is ahead of it." in text
    (first,) = connection.execute("select id from sereno.jobs where keys ->> 'fair' = 't2'").fetchall()
    assert _why(app, first[0]) == SOON
    assert (
        "It takes turns by its fair key 't1' (weight 2): 2 other keys are in front of it by turn, the next is 't2'."
        in text
    )


def test_why_counts_other_keys_that_wait_for_the_same_limit(
    app: Sereno, connection: Connection, claimer: Claimer
) -> None:
    set_limit(connection, "shared", Limit(1))
    for n in range(3):
        put(connection, keys(("shared", ""), (f"own{n}", "")))
        set_limit(connection, f"own{n}", Limit(1))
        claimer.take()
    (last,) = put(connection, keys(("shared", ""), ("own9", "")))
    set_limit(connection, "own9", Limit(1))
    claimer.take()
    text = _why(app, last)
    assert "The limit shared allows 1 at once, and 1 is running" in text
    assert "2 other keys wait for the same limit in front of it." in text
    assert "own9" not in text


def test_why_names_the_slots_of_a_running_job(app: Sereno, connection: Connection, claimer: Claimer) -> None:
    set_limit(connection, "a", Limit(3))
    set_limit(connection, "r", Rate(5))
    (job,) = put(connection, keys(("a", "k"), ("r", "")))
    assert claimer.take() == [job]
    text = _why(app, job)
    assert "It holds a slot of the limit a for the key 'k': 1 of 3 is taken." in text
    assert "limit r" not in text


@pytest.mark.slow
def test_why_reads_lanes_and_orders_by_index(connection: Connection, claimer: Claimer) -> None:
    """A lane and an order with very many jobs are read by index, and never completely."""
    connection.execute(
        "insert into sereno.jobs (task, queue, keys, lane, order_id, state, ready_seq) "
        "select 'work', 'default', k, sereno.lane_of('default', k), sereno.order_of('default', k), 'ready', "
        "nextval('sereno.ready_seq') from generate_series(1, 20000), (select '{\"order\": \"a\"}'::jsonb as k) as one"
    )
    for name in ("limiters", "lane", "order"):
        top = plan(connection, "jobs/limits/why_queries", name, {"id": 20000, "most": 3, "bound": 100})
        full_scans = [
            node["Node Type"]
            for node in nodes(top)
            if node.get("Relation Name") in ("jobs", "lanes", "history_dead") and node["Node Type"] == "Seq Scan"
        ]
        assert full_scans == [], name


def test_job_show_lists_the_keys_of_a_job(database_url: str, connection: Connection) -> None:
    (job,) = put(connection, keys(("sync", "r42"), ("pages", "", 3), fair="t1", order="acct", blocks=True))
    shown = CliRunner().invoke(main, ["job", "show", str(job)], env={"SERENO_DATABASE_URL": database_url})
    lines = [line.split(maxsplit=1) for line in shown.stdout.splitlines()]
    assert ["limit", "sync, key r42"] in lines
    assert ["limit", "pages, takes 3"] in lines
    assert "fair key    t1" in shown.stdout
    assert "order key   acct (a dead letter blocks it)" in shown.stdout
