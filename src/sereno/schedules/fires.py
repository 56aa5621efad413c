"""Manual fires, and the deletion of old fires from the default partition; the other partitions are dropped whole."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from sereno.database.json_values import encoder
from sereno.database.statement import Operation, Statement, queries

_sql = queries("schedules/fires")
_pairs = msgspec.json.Decoder(list[tuple[int, int]])


def record_again(fires: Sequence[Mapping[str, Any]]) -> Operation[set[tuple[int, int]]]:
    """Record instants of a manual run, including skipped ones. Return those that had not made a job before."""
    rows = yield Statement(_sql["record_again"], {"fires": encoder.encode(fires).decode()})
    return set(_pairs.decode(rows[0][0]))


# Rows deleted per call of `forget_fires`.
FORGOTTEN = 10_000


def forget_fires(days: int) -> Operation[int]:
    rows = yield Statement(_sql["forget_fires"], {"days": days, "most": FORGOTTEN})
    return int(rows[0][0])
