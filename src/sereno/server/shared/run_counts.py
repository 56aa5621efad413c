"""The counts of the runs of a schedule, as a user may see them."""

from collections.abc import Sequence

import msgspec

from sereno.access.identity import Principal
from sereno.access.masking import masked
from sereno.schedules.rows import FireRow
from sereno.server.shared.error_masking import sees_all


def counts_seen(fires: Sequence[FireRow], who: Principal) -> list[FireRow]:
    """Return the runs; for viewers without counts whose values the masking of results would hide."""
    return list(fires) if sees_all(who) else [_masked(fire) for fire in fires]


def _masked(fire: FireRow) -> FireRow:
    if fire.counts is None:
        return fire
    counts = {name: value for name, value in masked(fire.counts).items() if not isinstance(value, str)}
    return msgspec.structs.replace(fire, counts=counts)
