"""`sereno doctor`: a list of checks, each with a remedy for a problem."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from sereno.archive.health import ArchiveHealth, archive_health
from sereno.database import roles
from sereno.database.migrate import migrations
from sereno.database.servers import ports_of
from sereno.database.statement import Operation
from sereno.duration import duration_text
from sereno.jobs import requirements
from sereno.jobs.queries import jobs as job_queries
from sereno.jobs.queries.carriers import list_carriers
from sereno.monitoring import health_queries
from sereno.monitoring.alerts.condition_queries import ARCHIVE_BEHIND
from sereno.monitoring.carrier_checks import carrier_findings
from sereno.monitoring.health_queries import LimitHealth, LockHolder, ScheduleHealth, ServerHealth
from sereno.procedures.operations import ProcedureChecks, standings
from sereno.settings import Settings

Level = Literal["ok", "warn", "fail"]

OLDEST_SERVER = 150000
CLOCK_SKEW = 5.0
NOTIFICATION_USAGE = 0.10
LONG_TRANSACTION = 300.0
DEAD_TUPLES = 100_000
PGBOUNCER_PORT = 6432
SCHEDULE_LAG = 10.0
LONG_CLOSED = 3600.0
MANY_WAKES = 100_000
PROCEDURES_NAMED = 3
# Connections of a worker process besides its slots: claimer, settler, maintenance, listener.
OWN_CONNECTIONS = 4


@dataclass(frozen=True, slots=True)
class DoctorCheck:
    """One finding. `remedy`: what to do; empty when there is no problem."""

    name: str
    level: Level
    message: str
    remedy: str = ""


def doctor(settings: Settings, clock: Callable[[], float] = time.time) -> Operation[list[DoctorCheck]]:
    """Run every check, the basic ones first."""
    server = yield from health_queries.server()
    checks = [*_server(server, clock()), *_pooler(settings)]
    applied = yield from health_queries.applied()
    schema = _schema(applied, settings.schema)
    checks.append(schema)
    if schema.level == "fail":
        return checks
    login = yield from roles.current_role()
    checks.append(_login(login, settings))
    ahead = yield from health_queries.clock_ahead()
    checks.append(_moved_clock(ahead))
    checks += yield from _work()
    allowed, processes, slots = yield from health_queries.connections()
    checks += _connections(allowed, processes, slots, settings)
    scheduled = yield from health_queries.schedules()
    checks += _schedules(scheduled)
    limited = yield from health_queries.limits(LONG_CLOSED, MANY_WAKES)
    checks += _limits(limited)
    called = yield from standings()
    checks += _procedures(called, settings)
    holders = yield from health_queries.pinned()
    checks.append(_pinned(holders))
    dead, live = yield from health_queries.dead_tuples()
    checks.append(_dead_tuples(dead, live))
    today, tomorrow, strays = yield from health_queries.partitions()
    checks += _partitions(today, tomorrow, strays)
    archived = yield from archive_health(settings)
    checks += _archive(archived)
    carried = yield from list_carriers()
    checks += [DoctorCheck(*finding) for finding in carrier_findings(carried)]
    return checks


def _work() -> Operation[list[DoctorCheck]]:
    alive, expired = yield from health_queries.live_workers()
    queues = yield from health_queries.unserved_queues()
    tasks = yield from health_queries.unknown_tasks()
    dead = yield from job_queries.dead_letters()
    checks = [
        DoctorCheck("workers", "ok", f"{alive} alive")
        if alive
        else DoctorCheck("workers", "warn", "no worker is alive", "Start one: sereno worker")
    ]
    if expired:
        words = f"the leases of {expired} sessions have expired and no worker has recovered their jobs"
        checks.append(DoctorCheck("sessions", "fail", words, "Start a worker: it recovers their jobs within seconds."))
    if queues:
        words = f"ready jobs wait in queues that no live worker serves: {_names(queues)}"
        checks.append(DoctorCheck("queues", "fail", words, f"Start one: sereno worker -q {queues[0]}"))
    else:
        checks.append(DoctorCheck("queues", "ok", "every queue with ready jobs has a worker"))
    if tasks:
        names = ", ".join(f"{task!r} (queue {queue!r})" for task, queue in tasks)
        remedy = "Deploy the version that declares it, or: sereno job cancel --task NAME"
        checks.append(
            DoctorCheck("tasks", "fail", f"ready jobs wait for a task that no live worker knows: {names}", remedy)
        )
    else:
        checks.append(
            DoctorCheck("tasks", "ok", "every waiting task is known to a worker" if alive else "nothing to compare")
        )
    checks += yield from _requirements()
    if dead.value:
        remedy = "List them: sereno job list --state dead. Retry them: sereno job retry --state dead"
        checks.append(DoctorCheck("dead letters", "warn", f"{dead} jobs are dead", remedy))
    else:
        checks.append(DoctorCheck("dead letters", "ok", "none"))
    return checks


def _requirements() -> Operation[list[DoctorCheck]]:
    unmet = yield from requirements.unmet()
    without_key = yield from requirements.tasks_without_key()
    checks = []
    if unmet:
        words = "; ".join(f"jobs of task {each.task!r} (queue {each.queue!r}) wait for {each}" for each in unmet[:5])
        remedy = (
            "Deploy the release that has it, or give the workers the key; until release_grace is over, the jobs wait."
        )
        checks.append(DoctorCheck("releases", "fail", words, remedy))
    else:
        checks.append(DoctorCheck("releases", "ok", "every ready job has a worker of a release that can run it"))
    if without_key:
        words = f"tasks with encrypted arguments have no key in a live worker: {_names(without_key)}"
        remedy = "Create one with `sereno key new`, and set SERENO_ENCRYPTION_KEYS for every process."
        checks.append(DoctorCheck("encryption", "fail", words, remedy))
    return checks


def _connections(allowed: int, processes: int, slots: int, settings: Settings) -> Iterator[DoctorCheck]:
    """Check the connections: each worker process opens a few of its own, one for every slot, and `pool_size` more."""
    wanted = processes * (OWN_CONNECTIONS + settings.pool_size) + slots
    if wanted <= allowed or settings.transaction_pooler:
        yield DoctorCheck("connections", "ok", f"workers open at most {wanted}, and the server allows {allowed}")
    else:
        words = f"{processes} worker processes with {slots} slots may open {wanted}, and the server allows {allowed}"
        remedy = (
            "Raise max_connections, lower SERENO_CONCURRENCY, or use a pooler and set SERENO_TRANSACTION_POOLER=true."
        )
        yield DoctorCheck("connections", "warn", words, remedy)


def _schedules(found: ScheduleHealth) -> Iterator[DoctorCheck]:
    if found.any_due and not found.led:
        yield DoctorCheck(
            "scheduler",
            "fail",
            "there are schedules, and no scheduler is alive to fire them",
            "Start one: sereno scheduler",
        )
    elif found.behind is not None and found.behind > SCHEDULE_LAG:
        words = f"the oldest due schedule waits for {duration_text(found.behind)}"
        yield DoctorCheck("scheduler", "warn", words, "Check sereno status. Its last error is in the table leases.")
    else:
        yield DoctorCheck("scheduler", "ok", "on time" if found.any_due else "nothing to fire")
    if found.parked:
        words = f"schedules with invalid rules are parked: {_names(found.parked)}"
        yield DoctorCheck(
            "schedules", "warn", words, f"Check sereno schedule show {found.parked[0]}, and correct its rule."
        )
    if found.failed:
        words = f"schedules were disabled, because their runs failed: {_names(found.failed)}"
        yield DoctorCheck("schedules", "warn", words, f"Check sereno schedule show {found.failed[0]}, then resume it.")
    if found.refused:
        words = f"declared schedules could not be stored, and do not run: {'; '.join(found.refused)}"
        yield DoctorCheck("declarations", "fail", words, "Fix the cause, then restart a worker of that service.")


def _limits(found: LimitHealth) -> Iterator[DoctorCheck]:
    if found.unknown:
        words = f"jobs wait for limits that no code declares: {_names(found.unknown)}"
        remedy = f"Start a worker with the code that declares it, or: sereno limit set {found.unknown[0]} --slots N"
        yield DoctorCheck("limits", "fail", words, remedy)
    if found.closed:
        words = (
            f"jobs wait for limits that are closed for more than {duration_text(LONG_CLOSED)}: {_names(found.closed)}"
        )
        yield DoctorCheck("limits", "warn", words, f"If that is not intended: sereno limit open {found.closed[0]}")
    if not found.unknown and not found.closed:
        yield DoctorCheck("limits", "ok", "no job waits for a limit that is unknown or closed for long")
    if found.blocking:
        words = f"order keys are blocked by dead jobs: {', '.join(map(str, found.blocking))}"
        remedy = f"Retry it: sereno job retry {found.blocking[0]}. Or: sereno job delete {found.blocking[0]}"
        yield DoctorCheck("orders", "warn", words, remedy)
    if found.wakes > MANY_WAKES:
        words = f"more than {MANY_WAKES:,} wake-ups of jobs with limits are unread"
        yield DoctorCheck("wake-ups", "warn", words, "Start a worker of this version: it reads them at once.")


def _procedures(found: ProcedureChecks, settings: Settings) -> Iterator[DoctorCheck]:
    """Check the procedures in this database; `sereno procedure check` checks those elsewhere."""
    if found.wrong:
        more = len(found.wrong) - PROCEDURES_NAMED
        words = "; ".join(found.wrong[:PROCEDURES_NAMED]) + (f"; and {more} more" if more > 0 else "")
        yield DoctorCheck(
            "procedures", "fail", words, "Its jobs become dead. Check it, then: sereno procedure allow NAME"
        )
    if found.here and not settings.procedure_url:
        if settings.procedures_as_worker:
            words = "they are called with the worker's own role, which may change every job: this is for development"
        else:
            words = "some are allowed, and no role is configured to call them"
        remedy = "Set SERENO_PROCEDURE_URL to a role that can call them and nothing else."
        yield DoctorCheck("procedures", "warn", words, remedy)
    elif (found.here or found.elsewhere) and not found.wrong:
        words = f"{found.here} still have their allowed signatures"
        words += f"; {found.elsewhere} elsewhere: sereno procedure check" if found.elsewhere else ""
        yield DoctorCheck("procedures", "ok", words)


def _server(server: ServerHealth, here: float) -> Iterator[DoctorCheck]:
    if server.number >= OLDEST_SERVER:
        yield DoctorCheck("PostgreSQL", "ok", server.version)
    else:
        yield DoctorCheck(
            "PostgreSQL", "fail", f"{server.version} is too old", "Upgrade the server to PostgreSQL 15 or newer."
        )
    if server.synchronous_commit == "off":
        yield DoctorCheck(
            "durability",
            "warn",
            "synchronous_commit is off: a crash of the server can lose jobs that were accepted",
            "Set synchronous_commit = on for this database or role.",
        )
    else:
        yield DoctorCheck("durability", "ok", f"synchronous_commit is {server.synchronous_commit}")
    skew = here - server.moment
    if abs(skew) > CLOCK_SKEW:
        words = f"this machine is {duration_text(abs(skew))} {'ahead of' if skew > 0 else 'behind'} the database"
        yield DoctorCheck(
            "clocks", "warn", words, "Synchronise both with NTP. Jobs use the database's clock, your logs this one."
        )
    else:
        yield DoctorCheck("clocks", "ok", f"within {duration_text(abs(skew))} of the database")
    if server.notifications > NOTIFICATION_USAGE:
        words = f"PostgreSQL's notification queue is {server.notifications:.0%} full"
        yield DoctorCheck(
            "notifications", "warn", words, "A session listens but never reads: terminate it (see pg_stat_activity)."
        )
    else:
        yield DoctorCheck("notifications", "ok", f"{server.notifications:.0%} of the notification queue is used")


def _pooler(settings: Settings) -> Iterator[DoctorCheck]:
    if settings.transaction_pooler:
        yield DoctorCheck(
            "pooler", "ok", "transaction pooler mode: workers poll, without prepared statements or NOTIFY"
        )
    elif settings.database_url and PGBOUNCER_PORT in ports_of(settings.database_url):
        words = f"port {PGBOUNCER_PORT} looks like PgBouncer, and transaction_pooler is not set"
        yield DoctorCheck("pooler", "warn", words, "If it pools by transaction, set SERENO_TRANSACTION_POOLER=true.")


def _schema(applied: dict[int, str] | None, schema: str) -> DoctorCheck:
    if applied is None:
        return DoctorCheck("schema", "fail", f"the schema {schema!r} of sereno does not exist", "Run: sereno migrate")
    behind = [migration for migration in migrations() if migration.number not in applied]
    if behind:
        return DoctorCheck("schema", "fail", f"{len(behind)} migrations are not applied", "Run: sereno migrate")
    changed = [m for m in migrations() if applied[m.number] != m.checksum]
    if changed:
        words = f"migration {changed[0].number:04}_{changed[0].name} is not the one that was applied"
        return DoctorCheck(
            "schema", "fail", words, "Install the version of sereno that applied it, or restore the file."
        )
    return DoctorCheck("schema", "ok", f"{schema}, {len(applied)} migrations, up to date")


def _login(login: roles.CurrentRole, settings: Settings) -> DoctorCheck:
    """Report the privileges of the role; more than a process needs are only a hint."""
    if not login.is_superuser and not login.is_owner:
        return DoctorCheck("login", "ok", f"{login.name} is not a superuser and owns no table of sereno")
    words = (
        f"{login.name} {'is a superuser' if login.is_superuser else 'has all privileges of the owner of the tables'}"
    )
    hint = "Right for migrations; a process needs less. Roles for each process: sereno migrate --roles print"
    return DoctorCheck("login", "ok", words, hint if settings.database_url else "")


def _moved_clock(ahead: float | None) -> DoctorCheck:
    if ahead is None:
        return DoctorCheck("time", "ok", "the clock was not moved")
    return DoctorCheck(
        "time",
        "warn",
        f"the clock is moved by {duration_text(abs(ahead))}: this is for tests",
        "Delete the row of the table clock if this is not a test.",
    )


def _pinned(holders: list[LockHolder]) -> DoctorCheck:
    long = [h for h in holders if h.seconds is None or h.seconds > LONG_TRANSACTION]
    if not long:
        oldest = max((h.seconds or 0.0 for h in holders), default=0.0)
        return DoctorCheck(
            "transactions", "ok", f"the oldest is {duration_text(oldest)} old" if holders else "none is open for long"
        )
    worst = long[0]
    who = f"pid {worst.name}, {worst.detail!r}" if worst.kind == "transaction" else f"{worst.name}, {worst.detail}"
    since = f" for {duration_text(worst.seconds)}" if worst.seconds is not None else ""
    words = f"a {worst.kind} ({who}) has been open{since}: vacuum cannot clean up behind it"
    remedy = {
        "transaction": f"Terminate it: select pg_terminate_backend({worst.name})",
        "replication slot": f"If it is unused: select pg_drop_replication_slot('{worst.name}')",
        "prepared transaction": f"Finish it: rollback prepared '{worst.name}'",
    }[worst.kind]
    return DoctorCheck("transactions", "warn", words, remedy)


def _dead_tuples(dead: int, live: int) -> DoctorCheck:
    if dead > max(DEAD_TUPLES, live):
        words = f"{dead:,} dead rows in the table jobs, {live:,} live"
        return DoctorCheck(
            "vacuum", "warn", words, "End old transactions, then run vacuum (analyze) on the table jobs."
        )
    return DoctorCheck("vacuum", "ok", f"{dead:,} dead rows, {live:,} live")


def _partitions(today: bool, tomorrow: bool, strays: int) -> Iterator[DoctorCheck]:
    if today and tomorrow:
        yield DoctorCheck("history", "ok", "partitions for today and tomorrow exist")
    else:
        day = "tomorrow" if today else "today"
        yield DoctorCheck(
            "history", "warn", f"no history partition for {day}", "Start a worker: it creates them every hour."
        )
    if strays:
        words = f"{strays:,} finished jobs are in the default partition"
        yield DoctorCheck(
            "history", "warn", words, "Start a worker: it moves them when it creates the day's partition."
        )


def _archive(found: ArchiveHealth) -> Iterator[DoctorCheck]:
    if found.failed:
        words = f"{found.failed:,} files could not be written or verified; the first: {found.error}"
        remedy = "The next export tries again. Check sereno archive status. Retry now: sereno archive run"
        yield DoctorCheck("archive", "fail", words, remedy)
    if found.behind is not None and found.behind > ARCHIVE_BEHIND:
        words = f"it is {duration_text(found.behind)} behind: old rows are not in verified files yet"
        remedy = "Start a worker: it moves and exports them every night. Or now: sereno archive run"
        yield DoctorCheck("archive", "warn", words, remedy)
    elif not found.failed:
        yield DoctorCheck("archive", "ok", "on time" if found.is_on else "off: rows past their retention are deleted")


def _names(names: list[str]) -> str:
    return ", ".join(repr(name) for name in names)
