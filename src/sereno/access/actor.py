"""The default actor: the name in the audit if the caller gives none."""

import getpass
import os
import socket
from functools import cache


@cache
def default_actor() -> str:
    """Return `user@host`, with the user of the operating system."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        # A container may run under a uid without a user name.
        user = f"uid {os.getuid()}"
    return f"{user}@{socket.gethostname()}"
