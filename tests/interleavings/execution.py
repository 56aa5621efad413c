"""Runs one schedule: the actors of a scenario move in a given order, each on its own connection.

A statement that has not returned is asked about: if another connection blocks it, the others go on, and it continues
when they let it. If all actors wait for each other, PostgreSQL ends one of them with a deadlock error.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import psycopg

from tests.interleavings.actor import Actor, Next

# Seconds without a reply after which the server is asked whether the statement waits for a lock; then twice as many.
UNTIL_ASKED = 0.002

Fault: TypeAlias = Literal["", "!", "?"]


class Choice(NamedTuple):
    """Who moves. `fault`: `!` kills it before the move, `?` loses the reply of its commit."""

    actor: str
    fault: Fault = ""

    def __str__(self) -> str:
        return f"{self.actor}{self.fault}"


def parse(text: str) -> list[Choice]:
    """Return the choices of a printed schedule."""
    return [Choice(word.rstrip("!?"), word[-1] if word[-1] in "!?" else "") for word in text.split()]  # type: ignore[arg-type]


class Decision(NamedTuple):
    """A point of a schedule: what was chosen, what could have been, and whether the last actor could have gone on."""

    chosen: Choice
    enabled: tuple[Choice, ...]
    last: str | None

    def is_preemption(self, choice: Choice) -> bool:
        """Return whether the choice interrupts an actor that could have gone on."""
        return self.last is not None and choice.actor != self.last and Choice(self.last) in self.enabled


# Chooses among enabled choices, given the decisions so far and the actor that moved last.
Chooser: TypeAlias = Callable[[Sequence[Decision], tuple[Choice, ...], str | None], Choice]


class Execution:
    """The actors of one schedule and the decisions that were made."""

    def __init__(self, actors: Sequence[Actor], control: psycopg.Connection[Any], faulty: frozenset[str]) -> None:
        self._actors = {actor.name: actor for actor in actors}
        self._control = control
        self._faulty = faulty
        self._faults = 0
        self.decisions: list[Decision] = []
        self.last: str | None = None
        self.blocked = 0
        # Whether two statements waited at once: which one continues first is the choice of PostgreSQL.
        self.had_rivals = False

    def run(self, choose: Chooser, most_faults: int) -> None:
        """Let the actors move until all are done."""
        try:
            while not all(actor.is_done for actor in self._actors.values()):
                enabled = self._enabled(most_faults)
                if not enabled:
                    # All wait for locks: PostgreSQL finds the deadlock and ends one of them.
                    self._wait_for_any()
                    continue
                choice = choose(self.decisions, enabled, self.last)
                self.decisions.append(Decision(choice, enabled, self.last))
                self.last = choice.actor
                self._move(choice)
                self._let_blocked_continue(but=choice.actor)
        finally:
            for actor in self._actors.values():
                actor.reset()

    def _enabled(self, most_faults: int) -> tuple[Choice, ...]:
        ready = [actor for actor in self._actors.values() if actor.pending is None and actor.next is not Next.NOTHING]
        found = [Choice(actor.name) for actor in ready]
        if self._faults < most_faults:
            for actor in ready:
                if actor.name in self._faulty:
                    found.append(Choice(actor.name, "!"))
                    if actor.may_lose_reply:
                        found.append(Choice(actor.name, "?"))
        return tuple(found)

    def _move(self, choice: Choice) -> None:
        actor = self._actors[choice.actor]
        self._faults += bool(choice.fault)
        if choice.fault == "!":
            actor.kill()
        elif actor.next is Next.COMMIT:
            actor.commit(lose_reply=choice.fault == "?")
        else:
            actor.begin_statement()
            if actor.pending is not None:
                self._wait(actor)

    def _wait(self, actor: Actor) -> None:
        """Wait until its statement has returned, or waits for a lock of another connection."""
        assert actor.pending is not None
        seconds = UNTIL_ASKED
        while not actor.pending.wait(seconds):
            seconds *= 2
            if self._is_blocked(actor):
                self.blocked += 1
                self.had_rivals |= sum(each.pending is not None for each in self._actors.values()) > 1
                return
        actor.finish_statement()

    def _is_blocked(self, actor: Actor) -> bool:
        cursor = self._control.execute("select pg_blocking_pids(%s) <> '{}'", [actor.pid])
        found = cursor.fetchone()
        return bool(found and found[0])

    def _let_blocked_continue(self, but: str) -> None:
        """Wait for the statements that the last move has let go on, in a fixed order."""
        for actor in self._actors.values():
            if actor.pending is not None and actor.name != but:
                self._wait(actor)

    def _wait_for_any(self) -> None:
        pending = [actor for actor in self._actors.values() if actor.pending is not None]
        while not any(actor.pending.wait(UNTIL_ASKED) for actor in pending if actor.pending is not None):
            pass
        for actor in pending:
            self._wait(actor)

    def raise_errors(self) -> None:
        """Raise the first error that a program did not handle."""
        for actor in self._actors.values():
            if actor.error is not None:
                raise actor.error
