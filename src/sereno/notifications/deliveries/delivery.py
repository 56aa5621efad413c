"""A delivery (one event, recipient, address and channel), its states, and the outcomes of sending it.

    pending ──▶ sending ──▶ sent ──▶ delivered ──▶ read
       │           │ │        └────▶ bounced
       │           │ └▶ unknown ──▶ pending (try again), or it stays until a person decides
       │           └──▶ pending (a retry), failed, invalid, dead
       └──▶ skipped, expired
                         └▶ failed, invalid, dead, expired, bounced (collected into a message that did not arrive)

`sending` is committed before a provider is called. `unknown`: it may have been sent, the outcome is not known.
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
    # A delivery that was collected into another message gets the outcome of that message.
    "skipped": frozenset({"pending", "failed", "invalid", "dead", "expired", "bounced"}),
    "failed": frozenset({"pending"}),
    "invalid": frozenset({"pending"}),
    "expired": frozenset({"pending"}),
    "dead": frozenset({"pending"}),
    "unknown": frozenset({"pending", "dead", "sent", "delivered", "read", "bounced", "failed", "invalid"}),
}

# It did not arrive, or may not have: as sereno.failed_states() says. Lists find these deliveries however old they are.
FAILED: frozenset[State] = frozenset({"bounced", "failed", "invalid", "expired", "dead", "unknown"})

# Final states; only an operator can return a delivery to pending.
ENDED: frozenset[State] = frozenset({"read", "bounced", "skipped", "failed", "invalid", "expired", "dead"})
