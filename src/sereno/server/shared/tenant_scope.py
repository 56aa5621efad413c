"""Which tenant's data a user may see."""

from sereno.access.identity import Principal
from sereno.server.shared.http_error import not_found


def their_tenant(who: Principal, requested: str | None) -> str | None:
    """Return the tenant of a request: always their own for a tenant's user, who gets 404 for another one."""
    if who.tenant is None:
        return requested
    if requested not in (None, who.tenant):
        raise not_found(f"tenant {requested!r:.60}")
    return who.tenant


def check_theirs(who: Principal, tenant: str | None, what: str) -> None:
    """404 for a row of another tenant."""
    if who.tenant is not None and tenant != who.tenant:
        raise not_found(what)
