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

A job with predecessors:

enqueue ▶ waiting ──predecessors have ended──▶ scheduled, or ready if it is due
             └──── cancel, or a predecessor that was cancelled or is dead ──▶ cancelled
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
