"""Commits whose wait for a synchronous standby was cancelled.

PostgreSQL reports such a commit as successful, with a warning: it is on the primary alone, and lost if the standby is
promoted. So sereno does not take it as accepted: the call fails as if its reply had been lost.
"""

import weakref
from functools import partial

import psycopg
from psycopg.errors import Diagnostic

from sereno.database.timelines import AnyConnection

# The function of PostgreSQL that warns; the text of the warning depends on the language of the server.
_WAIT = "SyncRepWaitForLSN"

# Connections whose last commit may not be on a standby. Almost always empty.
UNREPLICATED: "weakref.WeakSet[AnyConnection]" = weakref.WeakSet()


class UnreplicatedCommit(psycopg.OperationalError):
    """The commit is on the primary, and may be on no standby."""


def watch(connection: AnyConnection) -> None:
    """Notice warnings about commits of this connection."""
    connection.add_notice_handler(partial(_note, weakref.ref(connection)))


def unreplicated(connection: AnyConnection) -> UnreplicatedCommit | None:
    """Return an error if the wait of a commit of this connection was cancelled."""
    if connection not in UNREPLICATED:
        return None
    return UnreplicatedCommit(
        "the wait for the synchronous standby was cancelled: the commit is on the primary alone, and may be lost"
    )


def check_replicated(connection: AnyConnection) -> None:
    """Raise UnreplicatedCommit if the wait of a commit of this connection was cancelled."""
    error = unreplicated(connection)
    if error is not None:
        raise error


def _note(reference: "weakref.ref[AnyConnection]", diagnostic: Diagnostic) -> None:
    connection = reference()
    if diagnostic.source_function == _WAIT and connection is not None:
        UNREPLICATED.add(connection)
