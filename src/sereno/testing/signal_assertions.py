"""Assertions of the test kit about signals: which were sent, and which jobs wait for one."""

from typing import Any

import msgspec

from sereno.app import Sereno
from sereno.jobs.handle import Job
from sereno.jobs.signals import SignalRow, awaited_signal, encode_value, list_signals

# Signals of one name that an assertion reads.
MOST = 1000
_ANY = object()


class SignalAssertions:
    """The part of the kit that knows signals."""

    app: Sereno

    def assert_signalled(self, name: str, value: Any = _ANY, *, tenant: str | None = None) -> SignalRow:
        """Assert that a signal was sent, with this value if one is given. Return the newest."""
        sent = self._signals(name, tenant)
        found = sent if value is _ANY else [each for each in sent if each.value == self._stored(name, value)]
        if not found:
            wanted = "" if value is _ANY else f" with {value!r}"
            others = "; ".join(f"{each.name}: {each.value!r}" for each in sent or self._signals(None, tenant))
            raise AssertionError(f"the signal {name} was not sent{wanted}; signals: {others or 'none'}")
        return found[0]

    def assert_not_signalled(self, name: str, *, tenant: str | None = None) -> None:
        """Assert that no signal of this name was sent."""
        if sent := self._signals(name, tenant):
            raise AssertionError(f"the signal {name} was sent: {'; '.join(repr(each.value) for each in sent)}")

    def assert_waiting_for(self, job: Job[Any] | int, name: str) -> None:
        """Assert that a job waits for a signal of this name, without a slot."""
        job_id = job if isinstance(job, int) else job.id
        wait = self.app.database.run(awaited_signal(job_id))
        if wait is None or wait.name != name:
            found = "no signal" if wait is None else f"the signal {wait.name}"
            raise AssertionError(f"job {job_id} waits for {found}, not for {name}")

    def _signals(self, name: str | None, tenant: str | None) -> list[SignalRow]:
        return self.app.database.run(list_signals(name=name, tenant=tenant, limit=MOST))

    def _stored(self, name: str, value: Any) -> Any:
        """Return a value as it is read back: what was sent may be a dataclass."""
        return msgspec.json.decode(encode_value(name, value, self.app.settings.arguments_limit))
