"""Retry policies: compute the delay before the next attempt from the number of failures."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from sereno.duration import Duration, seconds
from sereno.errors import ConfigurationError


@dataclass(frozen=True, slots=True, init=False)
class Backoff:
    """Exponential by default: 1, 2, 4 … minutes, at most 60, ten retries. Jitter only lengthens a delay.

    Backoff(3, delays=["15m", "30m", "60m"])      a fixed list
    Backoff(5, function=lambda failures: failures * 10.0)
    Backoff(8, permanent=(AccountClosed,))        these exceptions are never retried
    """

    retries: int
    first: float
    factor: float
    cap: float
    jitter: float
    delays: tuple[float, ...]
    function: Callable[[int], Duration] | None
    permanent: tuple[type[BaseException], ...] = field(default=())

    def __init__(
        self,
        retries: int = 10,
        *,
        first: Duration = "1m",
        factor: float = 2.0,
        cap: Duration = "60m",
        jitter: float = 0.1,
        delays: Sequence[Duration] = (),
        function: Callable[[int], Duration] | None = None,
        permanent: Sequence[type[BaseException]] = (),
    ) -> None:
        if retries < 0 or not 1 <= factor < math.inf or not 0 <= jitter < math.inf:
            raise ConfigurationError("Backoff needs retries >= 0, factor >= 1 and jitter >= 0")
        if delays and function:
            raise ConfigurationError("Backoff takes a list of delays or a function, not both")
        set_ = object.__setattr__
        set_(self, "retries", retries)
        set_(self, "first", seconds(first))
        set_(self, "factor", factor)
        set_(self, "cap", seconds(cap))
        set_(self, "jitter", jitter)
        set_(self, "delays", tuple(seconds(delay) for delay in delays))
        set_(self, "function", function)
        set_(self, "permanent", tuple(permanent))

    def delay(self, failures: int, chance: Random) -> float | None:
        """Return the seconds to wait after this many failures, or None when no retry is left."""
        if failures > self.retries:
            return None
        return self._planned(failures) * (1 + self.jitter * chance.random())

    def _planned(self, failures: int) -> float:
        if self.function is not None:
            try:
                return seconds(self.function(failures))
            except Exception:  # noqa: BLE001 - a failing policy must not block settling: fall back to exponential
                return self._exponential(failures)
        if self.delays:
            return self.delays[min(failures, len(self.delays)) - 1]
        return self._exponential(failures)

    def _exponential(self, failures: int) -> float:
        try:
            return min(self.cap, self.first * self.factor ** (failures - 1))
        except OverflowError:
            return self.cap if self.first else 0.0

    def is_permanent(self, error: BaseException) -> bool:
        """Return whether an attempt that raised this error is not retried."""
        return isinstance(error, self.permanent)


NO_RETRY = Backoff(0)
