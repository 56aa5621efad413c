"""`app.group`, apart from the application: importing groups takes time, and few processes need it."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from sereno.database.database import Database
from sereno.jobs.job import NewJob, OnDead
from sereno.jobs.task import Registry

if TYPE_CHECKING:
    from sereno.jobs.group import Group


class GroupMethods:
    """The part of `Sereno` that makes groups."""

    database: Database
    registry: Registry

    def group(
        self,
        jobs: Iterable["NewJob | Group"],
        then: NewJob | None = None,
        *,
        on_dead: OnDead = "wait",
        name: str | None = None,
        tenant: str | None = None,
    ) -> "Group":
        """Return a group of jobs: `app.group([load.job(n) for n in parts], then=report.job()).enqueue()`.

        `then` runs once, when all of them have succeeded. on_dead: what a dead one means: "wait" until it is retried,
        "continue" as if it had succeeded, or "cancel" the rest and `then`. `jobs` may be a generator of a million, and
        may contain groups.
        """
        from sereno.jobs.group import Group, new_group  # noqa: PLC0415 - few processes need it

        return Group(self.database, self.registry, new_group(jobs, then, on_dead, name, tenant))
