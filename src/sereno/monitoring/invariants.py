"""The invariants as queries; each must return no rows."""

from sereno.database.statement import Operation, Statement, queries
from sereno.database.transaction import statement_timeout
from sereno.jobs.attempt import CRASH_LIMIT

_sql = {
    **queries("monitoring/invariants"),
    **queries("monitoring/invariants_notifications"),
    **queries("monitoring/invariants_archive"),
    **queries("monitoring/invariants_links"),
    **queries("monitoring/invariants_iterations"),
    **queries("monitoring/invariants_releases"),
    **queries("monitoring/invariants_streams"),
    **queries("monitoring/invariants_carriers"),
}

# Name of the query -> what must hold, in the order in which they run.
INVARIANTS = {
    "orphaned": "running jobs belong to live sessions",
    "live_and_finished": "a job is live or finished, never both",
    "finished_twice": "a job finishes once",
    "attempts_of_live_jobs": "attempts of live jobs are numbered below the current one",
    "attempts_of_finished_jobs": "attempt numbers are never used again",
    "attempts_once": "an attempt is recorded once",
    "sessions_of_jobs": "running jobs have a session, waiting ones have none",
    "ready_order": "ready jobs have a position in the order",
    "known_states": "every state is a known one",
    "unique_live_keys": "a unique key has one live job",
    "unique_stored_keys": "a stored unique key points to one job",
    "times_in_order": "jobs are created, then started, then finished",
    "crash_limit": "no job crashes more often than the crash limit",
    "dead_with_reason": "every dead job has a reason",
    "retry_never_early": "no attempt starts before the previous one has ended",
    "side_rows": "steps, progress and waits for signals end with their job, in the same transaction",
    "signals_delivered": "no job waits for a signal that was sent",
    "cursors_of_attempts": "the cursor of an iteration was stored by an attempt of its job, and says where to continue",
    "predecessors_counted": "a waiting job waits for exactly its open predecessors",
    "predecessors_exist": "a waiting job waits for jobs that are live, or dead and can be retried",
    "groups_counted": "a group that is waited for has counted the jobs that ended",
    "chunks_in_order": "the chunks of an attempt are numbered from one, without gaps",
    "chunks_of_attempts": "the chunks of a job are those of its newest attempt that emitted some",
    "one_job_per_fire": "an instant of a schedule creates one job",
    "fires_accounted": "every fire has a job or a reason",
    "jobs_have_fires": "every job of a schedule belongs to a fire",
    "schedules_go_on": "an enabled schedule has a next run, or an active run after which it is planned",
    "stopped_schedules": "a schedule that is not enabled is never due",
    "schedules_on_time": "due schedules are fired within a minute while a scheduler leads",
    "limits_respected": "no limit has more running jobs than slots",
    "slots_counted": "every running job is counted by each of its limits",
    "slots_not_leaked": "no slot is held by a job without that limit",
    "lanes_awake": "every ready job with limits is known to its lane",
    "waits_are_checked": "a lane that waits for a limit is checked again",
    "order_respected": "one job of an order key runs at a time, the earliest first",
    "events_matched": "every due event has its audience, or a job that finds it",
    "deliveries_once": "an event has one delivery for each recipient, channel and address",
    "deliveries_legal": "the state of a delivery is consistent with its other columns",
    "failed_listed": "the table of failed deliveries has those that failed, and no others",
    "sending_has_a_job": "a delivery that is being sent has a live job",
    "waiting_is_queued": "a delivery that is pending, being sent or waiting for a receipt is in a batch",
    "pending_has_a_job": "a delivery that is long overdue has a job of its channel, or the channel is paused",
    "receipts_have_a_job": "a delivery that waits for a receipt has a job that polls for it",
    "inbox_delivered": "every inbox entry was delivered",
    "subscriptions_scoped": "a recipient is subscribed to topics of its own tenant",
    "archive_tables": "an archive batch has its table until it is dropped, and every table has its batch",
    "archive_held": "an archive table holds the rows that were counted, with the keys of its files",
    "archive_verified": "a verified or dropped batch has verified files that hold all its rows",
    "capable_sessions": "a running job has a worker with the version and the key that it requires",
    "requirements_known": "a job requires a version, a key or nothing",
    "relayed_jobs_gone": "a job in a message to publish is not stored as a job",
    "relayed_jobs_counted": "a message to publish has the jobs that it counts",
    "relayed_jobs_once": "a job is in one message to publish",
    "relay_taken_over": "a message of an ended session is published by another worker",
    "carried_back_once": "a job that came back from a carrier has a position, and does not leave again",
}


def begin(timeout: float) -> Operation[None]:
    """Start a read-only snapshot with a statement timeout in seconds. It must be first in its transaction."""
    yield Statement(_sql["begin"])
    yield from statement_timeout(timeout)


def violations(name: str, *, window: int | None, grace: float) -> Operation[list[tuple[int, str]]]:
    """Return (id of the row, description) of at most twenty rows that violate the invariant."""
    rows = yield Statement(_sql[name], {"window": window, "grace": grace, "crash_limit": CRASH_LIMIT})
    return [(row[0], row[1]) for row in rows]
