"""What a user may search for: masked values must not be found by guessing either."""

from collections.abc import Sequence
from datetime import UTC, datetime
from http import HTTPStatus

from sereno.access.identity import Principal
from sereno.access.masking import is_secret, masked
from sereno.search.search_filter import search_params
from sereno.search.sql_terms import SearchParams
from sereno.search.syntax import SearchField, SearchTerm, SearchWord, parse
from sereno.server.shared.error_masking import sees_all
from sereno.server.shared.http_error import HTTPError
from sereno.server.shared.tenant_scope import their_tenant


def check_search(text: str | None, fields: Sequence[SearchField], who: Principal) -> None:
    """403 for a search by a value that would be masked, for a user without the role operator."""
    if who.may("operator") or not text:
        return
    for term in parse(text, fields).terms:
        if term.path and _is_masked(term):
            name = ".".join((term.name, *term.path))
            raise HTTPError(HTTPStatus.FORBIDDEN, f"{name:.80} is masked: only an operator can search by it")


def searched(text: str | None, fields: Sequence[SearchField], who: Principal) -> SearchParams | None:
    """Return the parameters of a search now. Its days are days of UTC, the same for every user.

    404 for another tenant, as for a list with the parameter `tenant`.
    """
    check_search(text, fields, who)
    found = search_params(text, fields, datetime.now(UTC), hides=not sees_all(who))
    if found is not None:
        their_tenant(who, found.one("tenant"))
    return found


def _is_masked(term: SearchTerm) -> bool:
    """Return whether the name of the field is masked, or the value would be."""
    if any(is_secret(part) for part in term.path):
        return True
    guesses = [{term.path[-1]: value.text} for value in term.values if isinstance(value, SearchWord)]
    return any(masked(guess) != guess for guess in guesses)
