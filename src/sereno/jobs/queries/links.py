"""What a job waits for, what waits for it, and how far a group is."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sereno.bounded_count import BOUND, BoundedCount
from sereno.database.statement import Operation, Row, Statement, queries
from sereno.errors import GroupNotFound
from sereno.jobs.filters import JobFilter
from sereno.jobs.group_store import GroupRow, list_groups
from sereno.jobs.lifecycle import LIVE, STATES
from sereno.jobs.queries import jobs as job_queries
from sereno.jobs.queries.rows import JobLine, JobRow

_sql = queries("jobs/queries/links")

# Jobs of a list of predecessors or successors, and dead jobs of a group, that are shown.
MOST_SHOWN = 10


@dataclass(frozen=True, slots=True)
class LinkedJob:
    """A job at the other end of a dependency. `task` and `state` are None if it is gone, or of another tenant."""

    id: int
    task: str | None
    state: str | None


@dataclass(frozen=True, slots=True)
class LinkedJobs:
    """The first of some jobs, by id, and how many there are."""

    items: list[LinkedJob]
    total: BoundedCount

    @property
    def more(self) -> BoundedCount:
        """Return how many are not in the list."""
        return BoundedCount(self.total.value - len(self.items), self.total.exact)


@dataclass(frozen=True, slots=True)
class JobLinks:
    """The dependencies of a job. `waits_for`: all its predecessors, ended or not. `after_group`: it follows this group.

    `followed_by`: jobs that wait for it. `group`: the group that it belongs to.
    """

    waits_for: LinkedJobs
    after_group: GroupRow | None
    followed_by: LinkedJobs
    group: GroupRow | None

    @property
    def is_empty(self) -> bool:
        others = (self.after_group, self.group)
        return not self.waits_for.items and not self.followed_by.items and others == (None, None)


@dataclass(frozen=True, slots=True)
class GroupDetail:
    """A group. `states`: its jobs that the database still has, by state. `dead`: the newest dead ones."""

    group: GroupRow
    states: dict[str, BoundedCount]
    then: LinkedJob | None
    dead: list[JobLine]

    @property
    def is_over(self) -> bool:
        """Return whether its jobs and the job that follows them have ended."""
        return not any(state in LIVE for state in self.states) and (self.then is None or self.then.state not in LIVE)


def open_predecessors(job_id: int, *, tenant: str | None = None, most: int = MOST_SHOWN) -> Operation[LinkedJobs]:
    """Return the jobs that a waiting job still waits for. `tenant`: of the reader."""
    rows = yield Statement(_sql["open_predecessors"], {"id": job_id, "most": most})
    return _linked(rows, tenant)


def linked(ids: Sequence[int], *, tenant: str | None = None) -> Operation[list[LinkedJob]]:
    """Return jobs by their ids. `tenant`: of the reader."""
    rows = yield Statement(_sql["linked"], {"ids": list(ids)})
    return [_job(row, tenant) for row in rows]


def job_links(row: JobRow, *, tenant: str | None = None) -> Operation[JobLinks]:
    """Return the dependencies of a job. `tenant`: of the reader; nothing of other tenants is returned."""
    after = sorted(row.after or ())
    before = yield from linked(after[:MOST_SHOWN], tenant=tenant)
    rows = yield Statement(_sql["successors"], {"id": row.id, "most": MOST_SHOWN, "bound": BOUND})
    follows = yield from group_of(row.after_group, tenant)
    group = yield from group_of(row.group_id, tenant)
    followed_by = _linked(rows, tenant)
    if group is not None and group.then_job is not None and group.then_state == "waiting":
        then = yield from linked([group.then_job], tenant=tenant)
        known = {job.id for job in followed_by.items}
        added = [job for job in then if job.id not in known]
        total = BoundedCount(followed_by.total.value + len(added), followed_by.total.exact)
        followed_by = LinkedJobs([*followed_by.items, *added], total)
    return JobLinks(LinkedJobs(before, BoundedCount(len(after))), follows, followed_by, group)


def group_of(group_id: int | None, tenant: str | None) -> Operation[GroupRow | None]:
    """Return a group; None if it was forgotten, or is of another tenant than the reader."""
    if group_id is None:
        return None
    found = yield from list_groups(limit=1, group_id=group_id, tenant=tenant)
    return found[0] if found else None


def group_detail(group_id: int, *, tenant: str | None = None) -> Operation[GroupDetail]:
    """Return a group with its jobs by state, or raise GroupNotFound. `tenant`: of the reader."""
    group = yield from group_of(group_id, tenant)
    if group is None:
        raise GroupNotFound(f"no group has the id {group_id}")
    states: dict[str, BoundedCount] = {}
    for name in ("live_states", "finished_states"):
        rows = yield Statement(_sql[name], {"id": group_id, "bound": BOUND})
        exact = sum(number for _, number in rows) <= BOUND
        states |= {state: BoundedCount(number, exact) for state, number in rows}
    then = yield from linked([] if group.then_job is None else [group.then_job], tenant=tenant)
    wanted = JobFilter(group=group_id, states=["dead"], tenant=tenant)
    dead = yield from job_queries.list_jobs(wanted, MOST_SHOWN)
    ordered = {state: states[state] for state in STATES if state in states}
    return GroupDetail(group, ordered, then[0] if then else None, dead)


def inner_groups(group_id: int) -> Operation[list[int]]:
    """Return the groups inside of a group that have not ended."""
    rows = yield Statement(_sql["inner_groups"], {"id": group_id})
    return [row[0] for row in rows]


def _linked(rows: Sequence[Row], tenant: str | None) -> LinkedJobs:
    total = BoundedCount.bounded(rows[0][0]) if rows else BoundedCount(0)
    return LinkedJobs([_job(row[1:], tenant) for row in rows], total)


def _job(row: Row, tenant: str | None) -> LinkedJob:
    number, task, state, of = row
    found = LinkedJob(number, task, state)
    return found if tenant is None or of == tenant else replace(found, task=None, state=None)
