"""The legal state transitions of a job; any other transition is a bug.

             ┌──────────── retry, snooze ─────────────┐
             ▼                                        │
enqueue ▶ scheduled ──due──▶ ready ──claimed──▶ running ──▶ succeeded
   │         │                ▲ │                  │
   └─────────┼── due now ─────┘ │                  ├──▶ dead ───────┐
             │                ▲ │                  └──▶ cancelled   │
             └──────┬─────────┼─┘                          ▲        │
                    └─ cancel ┼────────────────────────────┘        │
                              └── release, rescue, requeue ◀────────┘
"""

LIVE = ("waiting", "scheduled", "ready", "running")
FINAL = ("succeeded", "dead", "cancelled")
STATES = LIVE + FINAL

TRANSITIONS: dict[str, frozenset[str]] = {
    "waiting": frozenset({"ready", "cancelled", "scheduled"}),
    "scheduled": frozenset({"ready", "cancelled", "scheduled"}),
    "ready": frozenset({"running", "cancelled", "scheduled", "ready"}),
    # A running job waits again for the jobs that it has called.
    "running": frozenset({"waiting", "scheduled", "ready", "succeeded", "dead", "cancelled"}),
    "succeeded": frozenset({"ready", "scheduled"}),
    "dead": frozenset({"ready", "scheduled"}),
    "cancelled": frozenset({"ready", "scheduled"}),
}


def is_legal(before: str, after: str) -> bool:
    return after in TRANSITIONS[before]
