"""The same measurements of other job queues, each in an environment and databases of its own."""

from collections.abc import Collection
from functools import partial

from .catalogue import PEERS
from .measure import Bench, Note, Report
from .runner import measure_peer, note_unknown

__all__ = ["run"]


def run(dsn: str, *, quick: bool, only: Collection[str] | None, report: Report, note: Note) -> None:
    """Measure every peer, or those named in `only`; a peer that fails is noted, and the next one is measured.

    The name of a package selects all its configurations: `graphile` includes `graphile_batched`.
    """
    note_unknown(only, {name for peer in PEERS for name in (peer.name, peer.program)}, note)
    for peer in PEERS:
        if only is None or peer.name in only or peer.program in only:
            measure_peer(peer, peer.name, dsn, note, partial(Bench, peer, quick=quick, report=report, note=note))
