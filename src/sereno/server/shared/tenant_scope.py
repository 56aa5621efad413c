"""Whose things somebody sees."""

from sereno.access.identity import Principal
from sereno.server.shared.http_error import not_found


def their_tenant(who: Principal, asked: str | None) -> str | None:
    """The tenant that is meant: somebody of a tenant means their own, and another's is not there."""
    if who.tenant is None:
        return asked
    if asked not in (None, who.tenant):
        raise not_found(f"tenant {asked!r:.60}")
    return who.tenant


def check_theirs(who: Principal, tenant: str | None, what: str) -> None:
    """404 for what belongs to somebody else."""
    if who.tenant is not None and tenant != who.tenant:
        raise not_found(what)
