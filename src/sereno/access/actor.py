"""Who does it: the name that goes into the audit when nobody gave a better one."""

import getpass
import os
import socket
from functools import cache


@cache
def default_actor() -> str:
    """The user of the operating system, at this machine."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        # A container may run under a number that no name belongs to.
        user = f"uid {os.getuid()}"
    return f"{user}@{socket.gethostname()}"
