"""Variants of a message: an event type declares them with weights, and each recipient always gets the same one."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Annotated

import msgspec

from sereno.errors import ConfigurationError

# The hash of a recipient is below this bound.
RANGE = 2**32
MOST_VARIANTS = 20


class Variants(msgspec.Struct, frozen=True):
    """The variants of an event type. `bounds`: each name with the hash below which it applies, in ascending order.

    `salt`: the event type and the names, so that new variants are dealt independently of earlier ones.
    """

    salt: str
    bounds: list[tuple[str, Annotated[int, msgspec.Meta(ge=0, le=RANGE)]]]

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.bounds]


def variants(event: str, weights: Mapping[str, float]) -> Variants:
    """Return the variants of an event type: `{"short": 1, "long": 3}` gives a quarter of the recipients `short`."""
    if not 2 <= len(weights) <= MOST_VARIANTS:  # noqa: PLR2004 - one is no variant
        raise ConfigurationError(f"event {event}: variants={dict(weights)!r:.60} needs 2 to {MOST_VARIANTS} variants")
    for name, weight in weights.items():
        if not (isinstance(name, str) and name.isascii() and name.replace("_", "").replace("-", "").isalnum()):
            raise ConfigurationError(f"event {event}: {name!r:.60} is no variant: use letters, digits, '_' and '-'")
        if isinstance(weight, bool) or not (isinstance(weight, int | float) and 0 < weight < float("inf")):
            raise ConfigurationError(f"event {event}: the weight of {name} must be above 0, not {weight!r:.60}")
    names = sorted(weights)
    total, passed, bounds = sum(weights.values()), 0.0, []
    for name in names:
        passed += weights[name]
        bounds.append((name, round(RANGE * passed / total)))
    return Variants(f"{event}:{','.join(names)}", bounds)


def variant_of(of: Variants, recipient: int) -> str:
    """Return the variant of a recipient, by its id. The SQL function of this name is the same."""
    point = int.from_bytes(sha256(f"{of.salt}:{recipient}".encode()).digest()[:4])
    return next(name for name, bound in of.bounds if point < bound)
