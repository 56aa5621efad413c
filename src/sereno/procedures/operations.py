"""Procedures as a person sees and changes them: what may be called, how it stands, and what it brought."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal

import psycopg

from sereno.access import audit
from sereno.access.actor import default_actor
from sereno.database.statement import Operation
from sereno.duration import Duration, seconds
from sereno.errors import DatabaseUnavailable, InvalidArguments, Refused, SerenoError
from sereno.procedures import store
from sereno.procedures.procedure import (
    HERE,
    Kind,
    ProcedureName,
    Signature,
    check_given,
    check_params,
    choose,
    parse_name,
    still,
)
from sereno.procedures.store import AllowedProcedure, LastRun, RunRow
from sereno.procedures.targets.address import Targets
from sereno.procedures.targets.contract import Session
from sereno.settings import Settings
from sereno.text import check_text

DEFAULT_TIMEOUT = "5m"
DEFAULT_LOCK_TIMEOUT = "10s"
LONGEST_TIMEOUT = 7 * 86400.0
LONGEST_NOTE = 2000
RUNS = 10
# Of those in our own database, by the doctor.
MOST_LOOKED_AT = 200

Standing = Literal["ok", "changed", "gone", "forbidden", "unreachable"]


@dataclass(frozen=True, slots=True)
class Procedure:
    """One that may be called, and its newest call that ended well."""

    allowed: AllowedProcedure
    last: LastRun | None


@dataclass(frozen=True, slots=True)
class ProcedureDetail:
    """One that may be called, with its newest calls."""

    allowed: AllowedProcedure
    runs: list[RunRow]


@dataclass(frozen=True, slots=True)
class Finding:
    """How a procedure stands in its own database now; `message` says what is wrong with it."""

    target: str
    name: str
    standing: Standing
    message: str


def allow(
    target: str,
    signature: Signature,
    *,
    given: Mapping[str, str] | None = None,
    timeout: Duration = DEFAULT_TIMEOUT,
    lock_timeout: Duration = DEFAULT_LOCK_TIMEOUT,
    note: str | None = None,
    actor: str | None = None,
) -> Operation[AllowedProcedure]:
    """From now on jobs may call it, as long as it has this signature. Said again, the newest word holds."""
    who, asked = actor or default_actor(), dict(given or {})
    check_given(signature, asked)
    if note is not None and (len(note) > LONGEST_NOTE or "\x00" in note):
        raise InvalidArguments(f"a note has at most {LONGEST_NOTE} characters, without NUL bytes")
    lengths = {"timeout": _length("timeout", timeout), "lock_timeout": _length("lock_timeout", lock_timeout)}
    made, is_new = yield from store.allow(target, signature, given=asked, note=note, actor=who, **lengths)
    detail = {"signature": str(signature), "given": asked, "new": is_new, **lengths}
    yield from audit.audit(who, "procedure.allow", _subject(target, signature.full_name), detail)
    return made


def list_allowed() -> Operation[list[Procedure]]:
    """By target and name."""
    return [Procedure(*line) for line in (yield from store.list_allowed())]


def find(target: str, name: str) -> Operation[AllowedProcedure]:
    """One that may be called, or Refused."""
    check_text("target", target)
    allowed = yield from store.find(target, parse_name(name))
    if allowed is None:
        raise Refused(f"{name:.200} is not allowed on {target}: sereno procedure list")
    return allowed


def show(target: str, name: str) -> Operation[ProcedureDetail]:
    """One that may be called, and what its newest calls brought."""
    allowed = yield from find(target, name)
    return ProcedureDetail(allowed, (yield from store.runs(target, parse_name(name), RUNS)))


def revoke(target: str, name: str, *, actor: str | None = None) -> Operation[AllowedProcedure]:
    """No job calls it any more. What earlier calls brought stays with their jobs."""
    check_text("target", target)
    gone = yield from store.revoke(target, parse_name(name))
    if gone is None:
        raise Refused(f"{name:.200} is not allowed on {target}: sereno procedure list")
    detail = {"signature": str(gone.signature)}
    yield from audit.audit(
        actor or default_actor(), "procedure.revoke", _subject(target, gone.signature.full_name), detail
    )
    return gone


class ProcedureBoard:
    """Looks into the databases themselves, with the login that calls."""

    def __init__(self, settings: Settings, own_url: Callable[[], str]) -> None:
        self._targets = Targets(settings, own_url)

    @property
    def targets(self) -> list[str]:
        return self._targets.names

    async def resolve(
        self, target: str, name: str, *, params: str | None = None, kind: Kind | None = None
    ) -> Signature:
        """The exact one that is meant; Refused where there is none, or several, or nobody may call it."""
        procedure = parse_name(name)
        database = self._targets.find(target)
        procedure.check_own(database.dialect, self._targets.own_schemas)
        async with self._session(target) as session:
            chosen = choose(await session.resolve(procedure), procedure, params, kind)
            if not await session.may_execute(procedure):
                raise Refused(
                    f"the login for procedures may not call {procedure}: grant execute, and usage of its schema"
                )
        return chosen

    async def check(self, allowed: AllowedProcedure) -> Finding:
        """Whether it is still what was allowed."""
        name = allowed.signature.full_name
        try:
            async with self._session(allowed.target) as session:
                found = await session.resolve(name)
                may = await session.may_execute(name)
        except SerenoError as error:
            return Finding(allowed.target, allowed.name, "unreachable", str(error))
        changed = still(allowed.signature, found)
        if changed is not None:
            return Finding(allowed.target, allowed.name, "changed" if found else "gone", changed)
        if not may:
            words = f"the login for procedures may not call {name}: grant execute, and usage of its schema"
            return Finding(allowed.target, allowed.name, "forbidden", words)
        return Finding(allowed.target, allowed.name, "ok", str(allowed.signature))

    async def check_params(self, allowed: AllowedProcedure, params: Mapping[str, Any]) -> None:
        """InvalidArguments unless a call with these would begin; nothing is run."""
        async with self._session(allowed.target) as session:
            found = await session.resolve(allowed.signature.full_name)
            changed = still(allowed.signature, found)
            if changed is not None:
                raise Refused(changed)
            check_params(allowed.signature, params, allowed.given, is_only=len(found) == 1)
            await session.convert(allowed.signature, params)

    @asynccontextmanager
    async def _session(self, target: str) -> AsyncIterator[Session]:
        try:
            async with self._targets.find(target).open() as session:
                await session.check_login()
                yield session
        except psycopg.Error as error:
            raise DatabaseUnavailable(
                f"the target {target} did not answer: {error.diag.message_primary or error}"
            ) from error


@dataclass(frozen=True, slots=True)
class ProcedureChecks:
    """How many are in our own database and how many elsewhere; and which of the first are not what was allowed."""

    here: int
    elsewhere: int
    wrong: list[str]


def standings() -> Operation[ProcedureChecks]:
    """Looked up in the catalogue of our own database, by whoever asks; nothing else is connected to."""
    allowed = [line for line, _ in (yield from store.list_allowed())]
    ours = [line for line in allowed if line.target == HERE]
    wrong = []
    for line in ours[:MOST_LOOKED_AT]:
        changed = still(line.signature, (yield from store.resolve(line.signature.full_name)))
        if changed is not None:
            wrong.append(changed)
    return ProcedureChecks(len(ours), len(allowed) - len(ours), wrong)


def _length(name: str, value: Duration) -> float:
    length = seconds(value)
    if not 0 < length <= LONGEST_TIMEOUT:
        raise InvalidArguments(f"{name} is more than nothing and at most a week")
    return length


def _subject(target: str, name: ProcedureName) -> str:
    return f"procedure {name}" if target == HERE else f"procedure {name} on {target}"
