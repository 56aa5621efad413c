"""Which schedules a request is about: one by its key, whatever characters that holds, or those of a filter."""

from dataclasses import replace
from typing import Annotated, Literal

from fastapi import Depends, Path, Query
from pydantic import BaseModel, Field

from sereno.access.identity import Principal
from sereno.database.statement import Operation
from sereno.jobs.filters import ScheduleFilter
from sereno.schedules import operations as schedules
from sereno.schedules import queries
from sereno.schedules.rows import ScheduleRow
from sereno.schedules.search_fields import SCHEDULE_FIELDS
from sereno.search.syntax import LONGEST
from sereno.server.api.router import Who
from sereno.server.shared.http_error import not_found
from sereno.server.shared.search_access import searched
from sereno.server.shared.tenant_scope import check_theirs, their_tenant
from sereno.text import NAME_LIMIT, check_text

MOST_KEYS = 10_000
KEY = "The key; slashes are part of it. For a key that no path can hold, use `?key=`, with `-` in the path."
EXACT = "The key instead of the one in the path: reaches any key there is, such as `..`, `heatmap` or `a/next`."

State = Literal["enabled", "paused", "disabled", "parked", "finished"]
Text = Annotated[str, Field(min_length=1, max_length=NAME_LIMIT)]


def named(
    key: Annotated[str, Path(min_length=1, max_length=NAME_LIMIT, description=KEY)],
    exact: Annotated[str | None, Query(alias="key", min_length=1, max_length=NAME_LIMIT, description=EXACT)] = None,
) -> str:
    """The key of the schedule."""
    found = key if exact is None else exact
    check_text("key", found)
    return found


Key = Annotated[str, Depends(named)]


def filter_params(
    who: Who,
    q: Annotated[
        str | None, Query(max_length=LONGEST, description="A search: state:paused task:menu tenant:r42 next:..tomorrow")
    ] = None,
    key: Annotated[Text | None, Query(description="A key, or a pattern in which * stands for anything.")] = None,
    task: Annotated[Text | None, Query()] = None,
    tenant: Annotated[Text | None, Query()] = None,
    states: Annotated[list[State] | None, Query(description="One of these states, repeatable.")] = None,
    declared_by: Annotated[Text | None, Query(description="The service whose code declares them.")] = None,
) -> ScheduleFilter:
    """The filter of a list."""
    found = searched(q, SCHEDULE_FIELDS, who)
    return ScheduleFilter.of(key, task=task, tenant=tenant, states=states, declared_by=declared_by, search_params=found)


Wanted = Annotated[ScheduleFilter, Depends(filter_params)]


class ScheduleSelection(BaseModel):
    """Which schedules; all given fields must match. `pattern`: a key in which * stands for anything.

    `q`: a search, as in a list.
    """

    q: str | None = Field(None, max_length=LONGEST)
    keys: list[Text] | None = Field(None, max_length=MOST_KEYS)
    pattern: Text | None = None
    task: Text | None = None
    tenant: Text | None = None
    states: list[State] | None = Field(None, max_length=10)
    declared_by: Text | None = None

    def filter(self, who: Principal) -> ScheduleFilter:
        named = self.model_dump(include=set(ScheduleSelection.model_fields) - {"q"})
        return of_theirs(ScheduleFilter(**named, search_params=searched(self.q, SCHEDULE_FIELDS, who)), who)


def of_theirs(wanted: ScheduleFilter, who: Principal) -> ScheduleFilter:
    """Return the filter for this user: only their own tenant's schedules, and 404 for another tenant."""
    return replace(wanted, tenant=their_tenant(who, wanted.tenant))


def theirs(key: str, who: Principal, *, locked: bool = False) -> Operation[ScheduleRow]:
    """Return the schedule of this key. A missing one and one of another tenant give the same error."""
    found = yield from schedules.lock([key]) if locked else queries.page(ScheduleFilter(keys=[key]), 1)
    if not found:
        raise not_found(called(key))
    check_theirs(who, found[0].tenant, called(key))
    return found[0]


def called(key: str) -> str:
    """Return how messages name a schedule."""
    return f"schedule {key!r:.80}"
