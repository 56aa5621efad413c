"""Searches of lists: their fields, the values that complete one, and those that users have saved."""

from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import Path, Query
from pydantic import BaseModel, Field

from sereno.access.identity import Principal
from sereno.errors import ConfigurationError
from sereno.monitoring import saved_searches
from sereno.monitoring.saved_searches import LONGEST_NAME, SavedSearch
from sereno.search.syntax import LONGEST, Kind, parse
from sereno.server.api.monitoring.search_lists import LISTS, SearchList, field_values
from sereno.server.api.paging import Page
from sereno.server.api.router import Router, Who
from sereno.server.shared.context import ServerContext
from sereno.server.shared.http_error import HTTPError, not_found
from sereno.text import NAME_LIMIT, check_text

ListName = Annotated[str, Path(max_length=40, description=f"One of {', '.join(LISTS)}.")]
SearchName = Annotated[str, Path(min_length=1, max_length=LONGEST_NAME)]


class SearchBody(BaseModel):
    """The search, in the grammar of its list."""

    text: str = Field(min_length=1, max_length=LONGEST)


@dataclass
class SearchFieldLine:
    """A field. `choices`: all its values, if they are few. `is_completed`: its values can be asked for."""

    name: str
    kind: Kind
    choices: list[str]
    is_completed: bool


@dataclass
class FieldValues:
    """Values of a field, the most frequent first, among the newest rows."""

    values: list[str]


def routes(context: ServerContext) -> Router:
    """`/searches`."""
    router = Router(context, "searches")
    also: dict[str, Any] = {"also": [HTTPStatus.NOT_FOUND]}

    @router.operation("GET", "/searches/{list_name}/fields", role="viewer", of_tenants=True, **also)
    async def list_fields(list_name: ListName, who: Who) -> Page[SearchFieldLine]:
        """The fields by which a list is searched."""
        found = _list(list_name, who)
        return Page(
            [SearchFieldLine(each.name, each.kind, [*each.choices], each.name in found.values) for each in found.fields]
        )

    @router.operation("GET", "/searches/{list_name}/values", role="viewer", of_tenants=True, **also)
    async def complete(
        list_name: ListName,
        who: Who,
        field: Annotated[str, Query(max_length=40, description="One of the fields with `is_completed`.")],
        begins: Annotated[str, Query(max_length=NAME_LIMIT, description="How the values begin.")] = "",
    ) -> FieldValues:
        """Values of a field that begin like this, among the newest rows of the list."""
        check_text("begins", begins or None)
        found = _list(list_name, who)
        if field not in found.values:
            raise not_found(f"completed field {field!r:.60} of the list {list_name}")
        return FieldValues(await context.read(field_values(found, field, begins, who)))

    @router.operation("GET", "/searches/{list_name}", role="viewer", of_tenants=True, **also)
    async def list_saved(list_name: ListName, who: Who) -> Page[SavedSearch]:
        """The saved searches of a list, by name. A tenant's users share theirs."""
        _list(list_name, who)
        return Page(await context.read(saved_searches.saved_searches(list_name, tenant=who.tenant)))

    _saved(context, router)
    return router


def _saved(context: ServerContext, router: Router) -> None:
    options: dict[str, Any] = {"role": "operator", "of_tenants": True, "also": [HTTPStatus.NOT_FOUND]}

    @router.operation("PUT", "/searches/{list_name}/{name}", **options)
    async def save(list_name: ListName, name: SearchName, body: SearchBody, who: Who) -> SavedSearch:
        """Save a search under a name, for all users who see the same tenants; one of this name is replaced."""
        parse(body.text, _list(list_name, who).fields)
        operation = saved_searches.save_search(list_name, name, body.text, tenant=who.tenant, actor=who.actor)
        return await context.change(operation)

    @router.operation("DELETE", "/searches/{list_name}/{name}", status_code=204, **options)
    async def delete(list_name: ListName, name: SearchName, who: Who) -> None:
        """Delete a saved search."""
        _list(list_name, who)
        check_text("name", name)
        try:
            await context.change(saved_searches.delete_search(list_name, name, tenant=who.tenant, actor=who.actor))
        except ConfigurationError as error:
            raise HTTPError(HTTPStatus.NOT_FOUND, str(error)) from None


def _list(name: str, who: Principal) -> SearchList:
    found = LISTS.get(name)
    if found is None:
        raise not_found(f"list {name!r:.60}")
    if who.tenant is not None and not found.of_tenants:
        raise HTTPError(HTTPStatus.FORBIDDEN, f"{who.name} can access only the tenant {who.tenant}")
    return found
