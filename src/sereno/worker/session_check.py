"""Checks after a promotion whether the new primary has the session of this worker."""

import os
import socket

from sereno.database.statement import Operation
from sereno.worker.sessions import is_own


class SessionCheck:
    """Runs on each connection of a session that is opened to a primary of another timeline, before anything else.

    A standby without the last commits does not have the session, or has another worker's under the same id. Then
    nothing may be written under that id.
    """

    def __init__(self, session: int) -> None:
        self._session = session
        self.is_lost = False

    def __call__(self) -> Operation[bool]:
        """Return whether the session is still that of this process."""
        found = yield from is_own(self._session, socket.gethostname(), os.getpid())
        self.is_lost = self.is_lost or not found
        return found
