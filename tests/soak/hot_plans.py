"""The plans of the hot statements, as node types and indexes, so that plans of two days can be compared."""

import re
from typing import Any

from sereno.database.statement import queries
from tests.database.plans import nodes, numbered
from tests.jobs.job_steps import Connection, line
from tests.soak.figures import family

# What workers and the scheduler run for each job, fire and delivery, on connections with the settings of `line`.
HOT = {
    "jobs/transitions": ("claim", "promote", "enqueue", "enqueue_one", "enqueue_limited", "enqueue_alike"),
    "jobs/settlement": ("succeed", "forget", "bury", "reschedule"),
    "jobs/limits/lane_claim": ("live", "pick", "write", "recheck", "make_limiters", "hand_over"),
    "worker/sessions": ("due_work", "report", "keep", "rescue", "expire", "take_duties", "forget_ended", "forget_keys"),
    "schedules/leader_lease": ("due", "lead"),
    "schedules/tick": ("take", "fire", "record", "link", "advance", "end_runs", "heal"),
    "notifications/deliveries/store": ("take_batches", "take", "settle_unsent", "without_job", "any_due"),
    "notifications/deliveries/outcomes": ("record", "record_accepted", "put_into_inbox"),
    "notifications/deliveries/receipt_store": ("apply_receipts", "apply_delivered", "hold_batches", "unrequested"),
    "notifications/events": ("begin_fan_out", "fan_out", "without_job"),
}
# Wrappers of partitions, which may be one or many.
APPENDS = re.compile("Append|Merge Append|Result")


def plans(url: str) -> dict[str, list[str]]:
    """Return the generic plan of each hot statement."""
    with line(url) as connection:
        # A generic plan is explained without parameter values.
        connection.prepare_threshold = None
        return {
            f"{file}.{name}": signature(_plan(connection, queries(file)[name]))
            for file, names in HOT.items()
            for name in names
        }


def _plan(connection: Connection, statement: str) -> dict[str, Any]:
    row = connection.execute(f"explain (generic_plan, format json) {numbered(statement)}".encode()).fetchone()
    assert row is not None
    top: dict[str, Any] = row[0][0]["Plan"]
    return top


def signature(top: dict[str, Any]) -> list[str]:
    """Return each kind of node once, with its table and index; partitions of a table count as one."""
    found = set()
    for node in nodes(top):
        if APPENDS.fullmatch(node["Node Type"]):
            continue
        words = [node["Node Type"], *(family(node[key]) for key in ("Relation Name", "Index Name") if key in node)]
        found.add(" ".join(words) + (" bounded" if "Index Cond" in node else ""))
    return sorted(found)
