"""Weights of fair keys: how many turns a key gets compared to others."""

from dataclasses import dataclass
from datetime import datetime

from sereno.access import audit
from sereno.access.actor import default_actor
from sereno.database.statement import Operation
from sereno.errors import InvalidArguments
from sereno.jobs.limits import store
from sereno.jobs.limits.operations import check_key
from sereno.jobs.limits.rows import BOUND
from sereno.text import check_text

LEAST_WEIGHT = 0.001
MOST_WEIGHT = 1_000_000


@dataclass(frozen=True, slots=True)
class WeightLine:
    """A fair key with a weight other than 1."""

    key: str
    weight: float
    changed_by: str | None
    changed_at: datetime


def weigh(key: str, weight: float, *, actor: str | None = None) -> Operation[None]:
    """Set the weight of a fair key: its number of turns for each turn of a key with weight 1 (the default)."""
    check_key(key)
    check_text("actor", actor)
    is_number = isinstance(weight, int | float) and not isinstance(weight, bool)
    if not is_number or not LEAST_WEIGHT <= weight <= MOST_WEIGHT:
        raise InvalidArguments(f"a weight is a number from {LEAST_WEIGHT} to {MOST_WEIGHT:,}, not {weight!r:.40}")
    if weight == 1:
        yield from unweigh(key, actor=actor)
        return
    who = actor or default_actor()
    yield from store.weigh(key, float(weight), who)
    yield from audit.audit(who, "limit.weigh", f"fair key {key}", {"weight": weight})


def unweigh(key: str, *, actor: str | None = None) -> Operation[bool]:
    """Reset the weight to 1. Returns False when it was 1 already."""
    check_key(key)
    check_text("actor", actor)
    changed = yield from store.unweigh(key)
    if changed:
        yield from audit.audit(actor or default_actor(), "limit.weigh", f"fair key {key}", {"weight": 1})
    return changed


def list_weights(*, most: int = BOUND) -> Operation[list[WeightLine]]:
    """Return the fair keys with a weight other than 1, heaviest first."""
    rows = yield from store.weights(most)
    return [WeightLine(*row) for row in rows]
