"""The invariants as questions to the database; every answer must be empty."""

from sereno.database.statement import Operation, Statement, queries
from sereno.jobs.attempt import CRASH_LIMIT

_sql = {
    **queries("monitoring/invariants"),
    **queries("monitoring/invariants_notifications"),
    **queries("monitoring/invariants_archive"),
}

# In the order in which they are asked. The sentence says what must hold.
PROMISES = {
    "orphaned": "running jobs belong to sessions that live",
    "live_and_finished": "a job is alive or finished, never both",
    "finished_twice": "a job finishes once",
    "attempts_of_live_jobs": "attempts of live jobs are numbered below the current one",
    "attempts_of_finished_jobs": "attempt numbers are never used again",
    "attempts_once": "an attempt is recorded once",
    "sessions_of_jobs": "running jobs have a session, waiting ones have none",
    "ready_order": "ready jobs have their place in the order",
    "known_states": "every state is one that there is",
    "unique_live_keys": "a unique key has one live job",
    "unique_kept_keys": "a kept unique key points to one job",
    "times_in_order": "jobs are made, then started, then finished",
    "crash_limit": "no job crashes more often than the limit",
    "dead_with_reason": "every dead letter has a reason",
    "retry_never_early": "no attempt starts before the one before it ended",
    "side_rows": "steps and progress end with their job, in the same transaction",
    "one_job_per_fire": "an instant of a schedule makes one job",
    "fires_accounted": "every fire has a job or a reason",
    "jobs_have_fires": "every job of a schedule belongs to a fire",
    "schedules_go_on": "an enabled schedule has something to come, or a run whose end brings it",
    "stopped_schedules": "a schedule that is not enabled is never due",
    "schedules_on_time": "what is due is fired within a minute while a scheduler leads",
    "limits_kept": "no limit has more running jobs than slots",
    "slots_counted": "every running job is counted by the limits that it passes",
    "slots_not_leaked": "no slot is taken by a job that does not pass there",
    "lanes_awake": "every ready job with limits is known to its lane",
    "waits_are_looked_at": "whoever waits for a limit is looked at again",
    "orders_kept": "of an order one job runs at a time, the earliest first",
    "events_matched": "every event that is due has its audience, or a job that finds it",
    "deliveries_once": "an event has one delivery for each recipient, channel and address",
    "deliveries_legal": "the state of a delivery fits what else is known of it",
    "sending_has_a_job": "what is being sent has a job that lives",
    "waiting_is_queued": "what waits to be sent, is being sent, or is to be asked about, is in a batch",
    "pending_has_a_job": "what has long been due has a job of its channel, or the channel is paused",
    "receipts_have_a_job": "what a receipt is awaited for has a job that asks",
    "inbox_delivered": "what is in an inbox was delivered",
    "archive_tables": "a batch of the archive has its table until it is dropped, and every table its batch",
    "archive_held": "a table of the archive holds the rows that were counted, and the keys of its files",
    "archive_verified": "what is verified or dropped is in verified files that hold all of its rows",
}


def begin(timeout: float) -> Operation[None]:
    """One read-only snapshot, in which no question takes longer than this; the first thing in its transaction."""
    yield Statement(_sql["begin"])
    yield Statement(_sql["patience"], {"milliseconds": int(timeout * 1000)})


def violations(name: str, *, window: int | None, grace: float) -> Operation[list[tuple[int, str]]]:
    """(id of the row, what is wrong) of at most twenty rows that break the promise."""
    rows = yield Statement(_sql[name], {"window": window, "grace": grace, "crash_limit": CRASH_LIMIT})
    return [(row[0], row[1]) for row in rows]
