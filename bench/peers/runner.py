"""Measures one peer in its own environment and databases; a failure does not stop the other peers."""

import tempfile
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Protocol

import psycopg

from .catalogue import Peer
from .database import PeerDatabases
from .environment import prepare
from .failure import PeerFailed
from .measure import Note, Workspace


class Measurement(Protocol):
    def run(self) -> None: ...


def measure_peer(peer: Peer, name: str, dsn: str, note: Note, bench: Callable[[Workspace], Measurement]) -> None:
    """Prepare the peer's workspace and measure it there; a failure is noted under `name`."""
    try:
        command = prepare(peer)
        with tempfile.TemporaryDirectory(prefix="bench-peer-") as scratch:
            bench(Workspace(command, PeerDatabases(dsn, peer.name), Path(scratch))).run()
    except (PeerFailed, psycopg.Error, OSError) as failure:
        note(f"{name}: not run: {' '.join(str(failure).split())}")


def note_unknown(only: Collection[str] | None, known: Collection[str], note: Note) -> None:
    for name in sorted(set(only or ()) - set(known)):
        note(f"{name}: not run: no such peer; there are {', '.join(sorted(known))}")
