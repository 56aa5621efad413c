"""The same work on other job queues, each in an environment and databases of its own."""

import tempfile
from collections.abc import Callable, Collection
from pathlib import Path

import psycopg

from .catalogue import PEERS, Peer
from .database import PeerDatabases
from .environment import prepare
from .failure import PeerFailed
from .measure import Bench, Site

__all__ = ["run"]


def run(
    dsn: str,
    *,
    quick: bool,
    only: Collection[str] | None,
    report: Callable[[str, float, str], None],
    note: Callable[[str], None],
) -> None:
    """Measure every peer, or those named in `only`; a peer that fails is noted and the next one follows."""
    for peer in _chosen(only, note):
        try:
            command = prepare(peer)
            with tempfile.TemporaryDirectory(prefix="bench-peer-") as scratch:
                site = Site(command, PeerDatabases(dsn, peer.name), Path(scratch))
                Bench(peer, site, quick, report, note).run()
        except (PeerFailed, psycopg.Error, OSError) as failure:
            note(f"{peer.name}: not run: {' '.join(str(failure).split())}")


def _chosen(only: Collection[str] | None, note: Callable[[str], None]) -> list[Peer]:
    """A package stands for all its configurations: `graphile` means `graphile_batched` too."""
    if only is None:
        return list(PEERS)
    known = {name for peer in PEERS for name in (peer.name, peer.program)}
    for name in sorted(set(only) - known):
        note(f"{name}: not run: no such peer; there are {', '.join(sorted(known))}")
    return [peer for peer in PEERS if peer.name in only or peer.program in only]
