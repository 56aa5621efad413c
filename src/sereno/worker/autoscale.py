"""`/autoscale` of the health port: how many workers some queues need, as JSON for the metrics-api scaler of KEDA."""

import asyncio
import re
from time import monotonic
from urllib.parse import parse_qs

import msgspec

from sereno.database.connect import ServiceConnection
from sereno.duration import seconds
from sereno.errors import ConfigurationError, InvalidArguments
from sereno.jobs.queries.autoscale import TARGET, AutoscaleQuery, QueueDemand, autoscale, queue_demands
from sereno.settings import Settings
from sereno.text import check_text

# Seconds for which a read serves all requests: several deployments ask for their queues.
FRESH_SECONDS = 5.0
# Timeout in seconds, of which the health port has five for a request.
READ_TIMEOUT = 3.0
# Bounds of a request.
MOST_QUEUES, MOST_SLOTS = 100, 10_000
SHORTEST_TARGET, LONGEST_TARGET = 1.0, 86_400.0


def parse_query(text: str) -> AutoscaleQuery:
    """Return the query of an address such as `?queue=mails&slots=20&target=1m`. Raises InvalidArguments."""
    try:
        given = parse_qs(text, keep_blank_values=True, strict_parsing=bool(text), max_num_fields=MOST_QUEUES + 2)
    except ValueError as error:
        raise InvalidArguments(f"the query of this address is invalid: {error}") from None
    if unknown := given.keys() - {"queue", "slots", "target"}:
        raise InvalidArguments(f"{min(unknown)!r:.80} is no parameter: there are queue, slots and target")
    return make_query(given.get("queue", []), _last(given.get("slots")), _last(given.get("target")))


def make_query(queues: list[str], slots: str | int | None, target: str | None) -> AutoscaleQuery:
    """Return a checked query. Raises InvalidArguments."""
    for name in queues:
        check_text("queue", name)
    if slots is not None and not (re.fullmatch("[0-9]{1,6}", str(slots)) and 1 <= int(slots) <= MOST_SLOTS):
        raise InvalidArguments(f"slots is a number from 1 to {MOST_SLOTS:,}")
    try:
        length = TARGET if target is None else seconds(target)
    except ConfigurationError as error:
        raise InvalidArguments(f"target: {error}") from None
    if not SHORTEST_TARGET <= length <= LONGEST_TARGET:
        raise InvalidArguments("target is from one second to one day")
    return AutoscaleQuery(tuple(dict.fromkeys(queues)), None if slots is None else int(slots), length)


class AutoscaleReader:
    """Reads the demand of all queues, at most once in FRESH_SECONDS, on a connection that is open only meanwhile."""

    def __init__(self, url: str, settings: Settings) -> None:
        self._settings = settings
        self._connection = ServiceConnection(url, settings, "autoscale", statement_timeout=READ_TIMEOUT)
        self._turn = asyncio.Lock()
        self._read_at = float("-inf")
        self._demands: list[QueueDemand] = []

    async def respond(self, text: str) -> bytes:
        """Return the response to a query. Raises InvalidArguments or DatabaseUnavailable."""
        query = parse_query(text)
        async with self._turn:
            if monotonic() > self._read_at + FRESH_SECONDS:
                await self._read()
        return msgspec.json.encode(autoscale(self._demands, query, self._settings))

    async def _read(self) -> None:
        try:
            self._demands = await self._connection.run(queue_demands(), READ_TIMEOUT)
            self._read_at = monotonic()
        finally:
            await self._connection.close()


def _last(values: list[str] | None) -> str | None:
    return values[-1] if values else None
