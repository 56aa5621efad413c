"""The provider of notified_app as a process, and its log: what it really received, independently of the database."""

import json
import os
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests.warm_process import WarmProcess

ROOT = Path(__file__).parents[2]


@contextmanager
def running_provider(log: Path) -> Iterator[str]:
    """Start the provider and return its URL; the messages that it accepted are in its log."""
    with WarmProcess(
        [sys.executable, "-m", "tests.faults.notified_app", str(log)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


@dataclass(frozen=True)
class ProviderLog:
    """`calls`: (time, status) of each message by delivery. `retried`: receipts that asked to send it again."""

    calls: Mapping[int, Sequence[tuple[float, str]]]
    retried: Mapping[int, int]

    @classmethod
    def read(cls, log: Path) -> Self:
        calls: dict[int, list[tuple[float, str]]] = defaultdict(list)
        names: dict[str, int] = {}
        again: set[str] = set()
        for at, status, subject, detail in map(json.loads, log.read_text().splitlines()):
            if status == "receipt":
                again |= {subject} if detail == "retry" else set()
            else:
                calls[subject].append((at, status))
                names[detail] = subject
        return cls(calls, Counter(names[name] for name in again))

    def faults(self, delivery: int, state: str, unknowns: int) -> list[str]:
        """Return what contradicts a delivery: calls without a counted reason, or a success without a call."""
        calls = self.calls.get(delivery, ())
        statuses = [status for _, status in calls]
        refused = statuses.count("refused") + statuses.count("busy")
        found = []
        if len(calls) > 1 + unknowns + refused + self.retried.get(delivery, 0):
            found.append(f"delivery {delivery} was sent too often: {calls}, unknown outcomes: {unknowns}")
        if state in ("sent", "delivered", "read") and "taken" not in statuses:
            found.append(f"delivery {delivery} is {state}, but the provider has not accepted it: {calls}")
        return found
