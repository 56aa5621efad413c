"""The quota of open streams: in all, per listener and per tenant."""

from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """`most`: in all. `of_one`: per listener. `of_tenant`: per tenant, however many tokens it has.

    `of_tenants`: of all tenants together, so that some are left for operators.
    """

    most: int
    of_one: int
    of_tenant: int
    of_tenants: int


class StreamQuota:
    """Counts open streams."""

    def __init__(self) -> None:
        self._ones: Counter[Hashable] = Counter()
        self._tenants: Counter[Hashable] = Counter()

    @property
    def total(self) -> int:
        return self._ones.total()

    def has_capacity(self, one: Hashable, tenant: str | None, limits: StreamLimits) -> bool:
        """Return whether one more may be opened."""
        if self.total >= limits.most or self._ones[one] >= limits.of_one:
            return False
        return tenant is None or (
            self._tenants[tenant] < limits.of_tenant and self._tenants.total() < limits.of_tenants
        )

    @contextmanager
    def hold(self, one: Hashable, tenant: str | None) -> Iterator[None]:
        """Count a stream until the end of the block."""
        self._ones[one] += 1
        if tenant is not None:
            self._tenants[tenant] += 1
        try:
            yield
        finally:
            _decrement(self._ones, one)
            if tenant is not None:
                _decrement(self._tenants, tenant)


def _decrement(counter: Counter[Hashable], key: Hashable) -> None:
    counter[key] -= 1
    if not counter[key]:
        del counter[key]
