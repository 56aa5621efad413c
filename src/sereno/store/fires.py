"""Fires that a person asks for; and fires are kept by the day, and dropped whole."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from sereno.domain.stored import encoder
from sereno.store.statement import Operation, Statement, queries

_sql = queries("fires")
_pairs = msgspec.json.Decoder(list[tuple[int, int]])


def record_again(fires: Sequence[Mapping[str, Any]]) -> Operation[set[tuple[int, int]]]:
    """Instants that a person wants run, skipped ones too; answers those that nobody has run before."""
    rows = yield Statement(_sql["record_again"], {"fires": encoder.encode(fires).decode()})
    return set(_pairs.decode(rows[0][0]))


def make_partitions() -> Operation[int]:
    rows = yield Statement(_sql["make_partitions"])
    return sum(1 for row in rows if row[0])


def old_partitions(days: int) -> Operation[list[str]]:
    rows = yield Statement(_sql["old_partitions"], {"days": days})
    return [row[0] for row in rows]


def drop_partition(name: str) -> Operation[None]:
    yield Statement(_sql["drop_partition"], {"name": name})


def forget_fires(days: int) -> Operation[int]:
    rows = yield Statement(_sql["forget_fires"], {"days": days})
    return int(rows[0][0])
