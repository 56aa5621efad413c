"""Where metrics of OpenTelemetry join in: attempts that have ended. `sereno.contrib.opentelemetry` sets `active`."""

from collections.abc import Sequence
from typing import Protocol


class Metering(Protocol):
    """What an implementation does."""

    def ended(self, queue: str, task: str, outcome: str, ran: Sequence[float]) -> None:
        """Record attempts with the same outcome. `ran`: the seconds of each."""


active: Metering | None = None


def set_active(metering: Metering | None) -> None:
    """Record the attempts of this process; None: do not."""
    global active  # noqa: PLW0603 - OpenTelemetry itself is set up once per process
    active = metering
