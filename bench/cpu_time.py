"""Processor time of the whole PostgreSQL server, if it runs on this machine, and of the machine."""

import os

import psycopg

from bench.process import PROC, processor_seconds

# Fields of /proc/PID/stat after the command: the parent, and the time of children that have ended.
PARENT = 1
ENDED = slice(13, 15)
# Fields of the first line of /proc/stat. The time of virtual machines is left out, because it is part of the others.
IDLE = slice(3, 5)
COUNTED = slice(0, 8)


def postmaster_of(connection: psycopg.Connection) -> int:
    """Return the process id of the server."""
    return int(_fields(connection.info.backend_pid)[PARENT])


def server_processes(postmaster: int) -> list[int]:
    """Return the process ids of the server and of its children."""
    children = (PROC / str(postmaster) / "task" / str(postmaster) / "children").read_text().split()
    return [postmaster, *map(int, children)]


def server_seconds(connection: psycopg.Connection) -> float:
    """Return the time of the postmaster, its children, and children that have ended, such as autovacuum workers."""
    postmaster = postmaster_of(connection)
    living = sum(map(_seconds, server_processes(postmaster)))
    return living + _in_seconds(_fields(postmaster)[ENDED])


def machine_seconds() -> float:
    """Return the time of all processes, including time stolen by the host."""
    fields = (PROC / "stat").read_text().splitlines()[0].split()[1:]
    return _in_seconds(fields[COUNTED]) - _in_seconds(fields[IDLE])


def _seconds(process: int) -> float:
    try:
        return processor_seconds(process)
    except (FileNotFoundError, ProcessLookupError):
        # The process has ended since it was listed, and is counted with the ended children.
        return 0.0


def _in_seconds(ticks: list[str]) -> float:
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


def _fields(process: int) -> list[str]:
    return (PROC / str(process) / "stat").read_text().rpartition(")")[2].split()
