"""A delivery: one event, one recipient, one address, one channel; and what may become of it.

    pending ──▶ sending ──▶ sent ──▶ delivered ──▶ read
       │           │ │        └────▶ bounced
       │           │ └▶ unknown ──▶ pending (try again), or it stays until a person decides
       │           └──▶ pending (a retry), failed, invalid, dead
       └──▶ skipped, expired
              └▶ failed, invalid, dead, expired, bounced (gathered into a message that did not arrive)

`sending` is committed before a provider is called. `unknown`: it may have been sent, and nobody can say.
"""

from collections.abc import Mapping
from typing import Literal

State = Literal[
    "pending",
    "sending",
    "sent",
    "delivered",
    "read",
    "bounced",
    "skipped",
    "failed",
    "invalid",
    "expired",
    "dead",
    "unknown",
]

TRANSITIONS: Mapping[State, frozenset[State]] = {
    "pending": frozenset({"sending", "skipped", "expired", "failed"}),
    "sending": frozenset(
        {"sent", "delivered", "pending", "failed", "invalid", "dead", "unknown", "skipped", "expired"}
    ),
    "sent": frozenset({"delivered", "read", "bounced", "failed", "invalid", "pending", "dead"}),
    "delivered": frozenset({"read", "bounced"}),
    "read": frozenset(),
    "bounced": frozenset({"pending"}),
    # What was gathered into another's message shares its fate.
    "skipped": frozenset({"pending", "failed", "invalid", "dead", "expired", "bounced"}),
    "failed": frozenset({"pending"}),
    "invalid": frozenset({"pending"}),
    "expired": frozenset({"pending"}),
    "dead": frozenset({"pending"}),
    "unknown": frozenset({"pending", "dead", "sent", "delivered", "read", "bounced", "failed", "invalid"}),
}

# States in which nothing is left to do by itself; back to pending only by a person.
ENDED: frozenset[State] = frozenset({"read", "bounced", "skipped", "failed", "invalid", "expired", "dead"})
