"""What people see of dependencies and groups: `why`, the links of a job, and the figures of a group."""

from typing import Any

import pytest

from sereno import Cancel, Dead, Sereno
from sereno.database.driver import drive
from sereno.errors import GroupNotFound
from sereno.jobs import group_operations, group_store
from sereno.jobs.attempt import SUCCEEDED
from sereno.jobs.group_store import EnqueuedGroup, NewGroup
from sereno.jobs.job import OnDead
from sereno.jobs.queries import jobs as job_queries
from sereno.jobs.queries import links
from sereno.jobs.queries.links import MOST_SHOWN, JobLinks
from sereno.jobs.queries.why import why
from tests.facts import one, state
from tests.jobs.job_steps import Connection, add, decided, do, end, new, session, take


def sentences(connection: Connection, job_id: int, tenant: str | None = None) -> str:
    return "\n".join(do(connection, why(job_id, tenant=tenant)))


def dead(connection: Connection, count: int = 1) -> None:
    owner = session(connection)
    end(connection, owner, take(connection, owner, count), decided(Dead("no")))


def group(connection: Connection, count: int, on_dead: OnDead = "wait", **options: Any) -> EnqueuedGroup:
    made = NewGroup([new(**options) for _ in range(count)], new(**options), on_dead, "load", options.get("tenant"))
    with connection.transaction():
        return do(connection, group_store.enqueue_group(made))


def links_of(connection: Connection, job_id: int, tenant: str | None = None) -> JobLinks:
    row = do(connection, job_queries.job_row(job_id))
    assert row is not None
    return do(connection, links.job_links(row, tenant=tenant))


def test_why_names_the_jobs_that_a_job_waits_for(connection: Connection) -> None:
    first, second = add(connection, 2)
    (last,) = add(connection, after=[first, second])
    dead(connection)
    text = sentences(connection, last)
    assert text.startswith(
        f"It waits for 2 jobs: {first} (work, dead: retry it with `sereno job retry {first}`), {second} (work, ready)."
    )
    owner = session(connection)
    end(connection, owner, take(connection, owner), SUCCEEDED)
    assert sentences(connection, last).startswith(f"It waits for 1 job: {first} (work, dead")


def test_why_names_some_of_many_jobs(connection: Connection) -> None:
    jobs = add(connection, MOST_SHOWN + 5)
    (last,) = add(connection, after=jobs)
    text = sentences(connection, last)
    assert f"It waits for {len(jobs)} jobs: {jobs[0]} (work, ready)," in text
    assert f"{jobs[MOST_SHOWN - 1]} (work, ready), and 5 more." in text
    assert f"{jobs[MOST_SHOWN]} (" not in text


def test_why_reports_the_progress_of_a_group(connection: Connection) -> None:
    made = group(connection, 4)
    assert made.then is not None
    dead(connection)
    owner = session(connection)
    end(connection, owner, take(connection, owner, 1), SUCCEEDED)
    text = sentences(connection, made.then.id)
    assert f"It waits for group {made.id}: 3 of 4 jobs remain, 1 is dead." in text
    assert f"sereno group show {made.id}" in text
    assert f"sereno job retry --state dead --search group:{made.id} --yes" in text


def test_why_shows_a_tenant_nothing_of_others(connection: Connection) -> None:
    (first,) = add(connection, task="secret", tenant="bob")
    (last,) = add(connection, tenant="ann", after=[first])
    assert sentences(connection, last, "ann").startswith(f"It waits for 1 job: {first}.")
    assert "secret" in sentences(connection, last)
    made = group(connection, 3, tenant="bob")
    assert made.then is not None
    text = sentences(connection, made.then.id, "ann")
    assert text.startswith(f"It waits for the jobs of group {made.id}.")
    assert "remain" not in text


def test_the_links_of_a_job(connection: Connection) -> None:
    (first,) = add(connection, tenant="ann")
    (last,) = add(connection, tenant="ann", after=[first])
    found = links_of(connection, first)
    assert [job.id for job in found.followed_by.items] == [last]
    assert found.waits_for.items == []
    found = links_of(connection, last)
    assert [(job.id, job.state) for job in found.waits_for.items] == [(first, "ready")]
    assert links_of(connection, last, "bob").waits_for.items[0].state is None
    (plain,) = add(connection)
    assert links_of(connection, plain).is_empty
    owner = session(connection)
    end(connection, owner, take(connection, owner, 1), SUCCEEDED)
    assert links_of(connection, last).waits_for.items[0].state == "succeeded", "predecessors that ended are shown too"


def test_the_links_of_a_job_of_a_group(connection: Connection) -> None:
    made = group(connection, 2, tenant="ann")
    assert made.then is not None
    member = one(connection, "select min(id) from sereno.jobs where group_id = %s", made.id)
    found = links_of(connection, member)
    assert found.group is not None
    assert found.group.id == made.id
    assert [job.id for job in found.followed_by.items] == [made.then.id]
    follows = links_of(connection, made.then.id).after_group
    assert follows is not None
    assert (follows.id, follows.total) == (made.id, 2)
    assert links_of(connection, member, "bob").group is None


def test_a_group_in_detail(connection: Connection) -> None:
    made = group(connection, 5, tenant="ann")
    assert made.then is not None
    dead(connection)
    owner = session(connection)
    end(connection, owner, take(connection, owner, 2), SUCCEEDED)
    found = do(connection, links.group_detail(made.id))
    assert {name: count.value for name, count in found.states.items()} == {"ready": 2, "succeeded": 2, "dead": 1}
    assert found.then is not None
    assert (found.then.id, found.then.state) == (made.then.id, "waiting")
    assert [line.reason for line in found.dead] == ["no"]
    with pytest.raises(GroupNotFound, match=f"no group has the id {made.id}"):
        do(connection, links.group_detail(made.id, tenant="bob"))


@pytest.mark.parametrize("on_dead", ["wait", "continue", "cancel"])
def test_a_cancelled_group_does_not_start_the_job_that_follows(connection: Connection, on_dead: OnDead) -> None:
    made = group(connection, 3, on_dead)
    assert made.then is not None
    owner = session(connection)
    running = take(connection, owner, 1)
    changed = drive(group_operations.cancel_group(made.id, actor="eve"), lambda each: do(connection, each))
    assert len(changed.done) == 3
    assert changed.stopping == [running[0].id]
    end(connection, owner, running, decided(Cancel("requested")))
    assert state(connection, made.then.id) == "cancelled"
    reason = one(connection, "select reason from sereno.history where id = %s", made.then.id)
    assert reason == f"group {made.id} was cancelled by eve"
    assert one(connection, "select count(*) from sereno.audit where actor = 'eve' and action = 'job.cancel'") == 2


def test_a_cancel_reaches_the_groups_inside_of_a_group(connection: Connection) -> None:
    inner = NewGroup([new(), new()], new("inner"))
    with connection.transaction():
        made = do(connection, group_store.enqueue_group(NewGroup([new(), inner], new("outer"))))
    drive(group_operations.cancel_group(made.id), lambda each: do(connection, each))
    assert one(connection, "select count(*) from sereno.jobs") == 0


def test_a_group_is_found_by_its_id(app: Sereno) -> None:
    @app.task
    def work(number: int) -> None: ...

    @app.task
    def report() -> None: ...

    made = app.group([work.job(1), work.job(2)], then=report.job()).enqueue()
    found = app.jobs.group(made.id)
    assert (found.id, found.total) == (made.id, 2)
    assert found.then == made.then
    assert found.state().remaining == 2
    assert len(found.cancel().done) == 3
    with pytest.raises(GroupNotFound, match="no group has the id 4711"):
        app.jobs.group(4711)


async def test_a_group_is_found_by_its_id_in_async_code(app: Sereno) -> None:
    @app.task
    def work(number: int) -> None: ...

    made = await app.group([work.job(1)]).aenqueue()
    found = await app.jobs.agroup(made.id)
    assert found.then is None
    assert (await found.astate()).remaining == 1


def test_a_bulk_change_finds_jobs_by_what_they_wait_for(app: Sereno, connection: Connection) -> None:
    first, other = add(connection, 2)
    waiting = add(connection, 2, after=[first])
    add(connection, after=[other])
    assert sorted(line.id for line in app.jobs.find(f"after:{first}")) == waiting
    assert app.jobs.find(f"after:{first}").cancel().done == waiting
    assert one(connection, "select count(*) from sereno.jobs") == 3
