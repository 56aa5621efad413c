"""Operations on worker sessions: register, renew leases, declare dead, and rescue the jobs of dead sessions."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from sereno.database.json_values import encoder
from sereno.database.statement import Operation, Statement, queries
from sereno.database.vacuum import PAGE
from sereno.jobs.transitions import EVERYTHING

_sql = queries("worker/sessions")
_ids = msgspec.json.Decoder(list[int])
_floors = msgspec.json.Decoder(list[dict[str, int]])


@dataclass(frozen=True, slots=True)
class DueWork:
    """What a promoter has to do. `next_due`: seconds until the next scheduled job, negative if it is due already."""

    next_due: float | None
    expired_sessions: bool
    orphans: bool
    signals: bool
    unchecked_links: bool
    cancelling_groups: bool


def register(
    *,
    host: str,
    pid: int,
    version: str,
    queues: Mapping[str, int],
    tasks: Collection[str],
    lease: float,
    release: str | None = None,
    capabilities: Mapping[str, Any] | None = None,
) -> Operation[tuple[int, dict[str, int]]]:
    """Register a session; return its id and the highest floors that other sessions have published."""
    rows = yield Statement(
        _sql["register"],
        {
            "host": host,
            "pid": pid,
            "version": version,
            "queues": encoder.encode(queues).decode(),
            "tasks": sorted(tasks),
            "lease": lease,
            "release": release,
            "capabilities": None if capabilities is None else encoder.encode(capabilities).decode(),
        },
    )
    floors: dict[str, int] = {}
    for published in _floors.decode(rows[0][1]):
        for pair, floor in published.items():
            floors[pair] = max(floor, floors.get(pair, 0))
    return rows[0][0], floors


def keep(ids: Sequence[int], lease: float) -> Operation[set[int]]:
    """Renew the leases of these sessions (the heartbeat); return the ids that are still alive."""
    rows = yield Statement(_sql["keep"], {"ids": sorted(ids), "lease": lease})
    return {row[0] for row in rows}


def report(
    session: int, floors: Mapping[str, int], held: Collection[int], waiting: Collection[int] = ()
) -> Operation[tuple[str, list[int]]]:
    """Publish the floors and the jobs that have not started; return the session's state and the jobs to cancel."""
    rows = yield Statement(
        _sql["report"],
        {
            "session": session,
            "floors": encoder.encode(floors).decode(),
            "held": list(held),
            "waiting": list(waiting),
        },
    )
    return rows[0][0], _ids.decode(rows[0][1])


def announce(session: int, suspects: Mapping[int, int]) -> Operation[bool]:
    """Store the suspects (job: attempt) that run alone in this session; return False if it is no longer alive."""
    rows = yield Statement(
        _sql["announce"],
        {"session": session, "suspects": encoder.encode({str(job): tried for job, tried in suspects.items()}).decode()},
    )
    return bool(rows)


def set_idle(session: int, idle: bool) -> Operation[None]:
    yield Statement(_sql["set_idle"], {"session": session, "idle": idle})


def is_own(session: int, host: str, pid: int) -> Operation[bool]:
    """Return whether the session exists and is that of this process."""
    rows = yield Statement(_sql["is_own"], {"session": session, "host": host, "pid": pid})
    return bool(rows[0][0])


def finish(ids: Sequence[int], state: Literal["closed", "dead"], pid: int | None = None) -> Operation[None]:
    """End sessions; with `pid`, only those of this process."""
    yield Statement(_sql["finish"], {"ids": sorted(ids), "state": state, "pid": pid})


def due_work(
    look_back: float = EVERYTHING,
    queues: Collection[str] | None = None,
    elsewhere: float = 0.0,
    *,
    signals: bool = True,
) -> Operation[DueWork]:
    """Return what is due. Jobs of other queues than `queues` count as due that many seconds later."""
    wanted = None if queues is None else list(queues)
    params = {"look_back": look_back, "queues": wanted, "elsewhere": elsewhere, "signals": signals}
    return DueWork(*(yield Statement(_sql["due_work"], params))[0])


def expire() -> Operation[list[tuple[int, str, int]]]:
    """Declare sessions dead whose lease has expired; return (id, host, pid) of each."""
    rows: list[Any] = yield Statement(_sql["expire"])
    return rows


def rescue(*, everywhere: bool = False) -> Operation[list[int]]:
    """Make jobs of dead sessions ready again, at most 1,000 a call. `everywhere`: also those of older sessions."""
    rows = yield Statement(_sql["rescue"], {"everywhere": everywhere})
    return _ids.decode(rows[0][0])


def unknown_tasks() -> Operation[list[tuple[str, str, int]]]:
    """Return the tasks of ready jobs that no live worker can run: (queue, task, count at least) each."""
    rows: list[Any] = yield Statement(_sql["unknown_tasks"])
    return rows


def take_duties(every: Mapping[str, float]) -> Operation[set[str]]:
    """Take the duties that are due, and return their names; only one worker gets each. `every`: seconds by name."""
    rows = yield Statement(_sql["take_duties"], {"names": list(every), "every": list(every.values())})
    return {name for (name,) in rows}


def put_off_duty(name: str, seconds: float) -> Operation[None]:
    """Postpone a duty by this many seconds on top of its ordinary interval."""
    yield Statement(_sql["put_off_duty"], {"name": name, "seconds": seconds})


def forget_ended() -> Operation[bool]:
    """Delete a page of sessions that ended long ago and of expired unique keys; return whether there may be more."""
    ended = yield Statement(_sql["forget_ended"], {"most": PAGE})
    keys = yield Statement(_sql["forget_keys"], {"most": PAGE})
    return max(len(ended), len(keys)) >= PAGE
