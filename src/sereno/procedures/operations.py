"""Operations on procedures: allow, list, show, revoke, and check against their databases."""

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
    ProcedureSignature,
    check_given,
    check_params,
    choose,
    parse_name,
    still,
)
from sereno.procedures.rows import AllowedProcedure, LastRun, RunRow
from sereno.procedures.targets.address import Targets
from sereno.procedures.targets.contract import Session
from sereno.settings import Settings
from sereno.text import check_text

DEFAULT_TIMEOUT = "5m"
DEFAULT_LOCK_TIMEOUT = "10s"
LONGEST_TIMEOUT = 7 * 86400.0
LONGEST_NOTE = 2000
RUNS = 10
# Procedures of sereno's own database that `sereno doctor` checks.
MOST_CHECKED = 200

Standing = Literal["ok", "changed", "gone", "forbidden", "unreachable"]


@dataclass(frozen=True, slots=True)
class Procedure:
    """An allowed procedure and its newest successful call."""

    allowed: AllowedProcedure
    last: LastRun | None


@dataclass(frozen=True, slots=True)
class ProcedureDetail:
    """An allowed procedure with its newest calls."""

    allowed: AllowedProcedure
    runs: list[RunRow]


@dataclass(frozen=True, slots=True)
class ProcedureFinding:
    """The state of a procedure in its database; `message` describes the problem."""

    target: str
    name: str
    standing: Standing
    message: str


def allow(
    target: str,
    signature: ProcedureSignature,
    *,
    given: Mapping[str, str] | None = None,
    timeout: Duration = DEFAULT_TIMEOUT,
    lock_timeout: Duration = DEFAULT_LOCK_TIMEOUT,
    note: str | None = None,
    actor: str | None = None,
) -> Operation[AllowedProcedure]:
    """Allow jobs to call it while it has this signature. A later call replaces an earlier one."""
    who, facts = actor or default_actor(), dict(given or {})
    check_given(signature, facts)
    if note is not None and (len(note) > LONGEST_NOTE or "\x00" in note):
        raise InvalidArguments(f"a note has at most {LONGEST_NOTE} characters, without NUL bytes")
    lengths = {
        "timeout": check_timeout("timeout", timeout),
        "lock_timeout": check_timeout("lock_timeout", lock_timeout),
    }
    made, is_new = yield from store.allow(target, signature, given=facts, note=note, actor=who, **lengths)
    detail = {"signature": str(signature), "given": facts, "new": is_new, **lengths}
    yield from audit.audit(who, "procedure.allow", _subject(target, signature.full_name), detail)
    return made


def list_allowed() -> Operation[list[Procedure]]:
    """Return the allowed procedures by target and name."""
    return [Procedure(*line) for line in (yield from store.list_allowed())]


def find(target: str, name: str) -> Operation[AllowedProcedure]:
    """Return an allowed procedure. Raises Refused if there is none with this name."""
    check_text("target", target)
    allowed = yield from store.find(target, parse_name(name))
    if allowed is None:
        raise Refused(f"{name:.200} is not allowed on {target}: `sereno procedure list` lists those that are")
    return allowed


def show(target: str, name: str) -> Operation[ProcedureDetail]:
    """Return an allowed procedure and the results of its newest calls."""
    allowed = yield from find(target, name)
    return ProcedureDetail(allowed, (yield from store.runs(target, parse_name(name), RUNS)))


def revoke(target: str, name: str, *, actor: str | None = None) -> Operation[AllowedProcedure]:
    """Stop jobs from calling it. The results of earlier calls stay with their jobs."""
    check_text("target", target)
    gone = yield from store.revoke(target, parse_name(name))
    if gone is None:
        raise Refused(f"{name:.200} is not allowed on {target}: `sereno procedure list` lists those that are")
    detail = {"signature": str(gone.signature)}
    yield from audit.audit(
        actor or default_actor(), "procedure.revoke", _subject(target, gone.signature.full_name), detail
    )
    return gone


class ProcedureOperations:
    """Reads the catalogues of the databases, with the login that calls procedures."""

    def __init__(self, settings: Settings, own_url: Callable[[], str]) -> None:
        self._targets = Targets(settings, own_url)

    @property
    def targets(self) -> list[str]:
        return self._targets.names

    async def resolve(
        self, target: str, name: str, *, params: str | None = None, kind: Kind | None = None
    ) -> ProcedureSignature:
        """Return the exact signature. Raises Refused if there is none or several, or the login may not call it."""
        procedure = parse_name(name)
        database = self._targets.find(target)
        procedure.check_own(database.dialect, self._targets.own_schemas)
        async with self._session(target) as session:
            chosen = choose(await session.resolve(procedure), procedure, params, kind)
            if not await session.may_execute(procedure):
                raise Refused(
                    f"the login for procedures may not call {procedure}: grant execute on it and usage on its schema"
                )
        return chosen

    async def check(self, allowed: AllowedProcedure) -> ProcedureFinding:
        """Return whether it is still what was allowed."""
        name = allowed.signature.full_name
        try:
            async with self._session(allowed.target) as session:
                found = await session.resolve(name)
                may = await session.may_execute(name)
        except SerenoError as error:
            return ProcedureFinding(allowed.target, allowed.name, "unreachable", str(error))
        changed = still(allowed.signature, found)
        if changed is not None:
            return ProcedureFinding(allowed.target, allowed.name, "changed" if found else "gone", changed)
        if not may:
            text = f"the login for procedures may not call {name}: grant execute on it and usage on its schema"
            return ProcedureFinding(allowed.target, allowed.name, "forbidden", text)
        return ProcedureFinding(allowed.target, allowed.name, "ok", str(allowed.signature))

    async def check_params(self, allowed: AllowedProcedure, params: Mapping[str, Any]) -> None:
        """Raise InvalidArguments unless a call with these parameters would start. Runs nothing."""
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
            raise DatabaseUnavailable(f"the target {target} failed: {error.diag.message_primary or error}") from error


@dataclass(frozen=True, slots=True)
class ProcedureChecks:
    """How many procedures are in sereno's own database and in others; and which of the former have changed."""

    here: int
    elsewhere: int
    wrong: list[str]


def standings() -> Operation[ProcedureChecks]:
    """Check the procedures of sereno's own database in its catalogue. Connects to no other database."""
    allowed = [line for line, _ in (yield from store.list_allowed())]
    ours = [line for line in allowed if line.target == HERE]
    wrong = []
    for line in ours[:MOST_CHECKED]:
        changed = still(line.signature, (yield from store.resolve(line.signature.full_name)))
        if changed is not None:
            wrong.append(changed)
    return ProcedureChecks(len(ours), len(allowed) - len(ours), wrong)


def check_timeout(name: str, value: Duration) -> float:
    """Return the timeout in seconds. Raises InvalidArguments if it is out of range."""
    length = seconds(value)
    if not 0 < length <= LONGEST_TIMEOUT:
        raise InvalidArguments(f"{name} must be more than 0 and at most a week")
    return length


def _subject(target: str, name: ProcedureName) -> str:
    return f"procedure {name}" if target == HERE else f"procedure {name} on {target}"
