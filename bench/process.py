"""Processor time, memory and children of a process, as the kernel counts them."""

import os
from pathlib import Path

PROC = Path("/proc")


def family(process: int) -> list[int]:
    """Return the process and all its descendants, for example the children of a supervisor."""
    members = [process]
    for task in (PROC / str(process) / "task").iterdir():
        for child in (task / "children").read_text().split():
            members += family(int(child))
    return members


def processor_seconds(process: int) -> float:
    # The command in the second field may hold spaces and brackets, so the line is split after its end.
    fields = (PROC / str(process) / "stat").read_text().rpartition(")")[2].split()
    user, system = int(fields[11]), int(fields[12])
    return (user + system) / os.sysconf("SC_CLK_TCK")


def on_processor_seconds(process: int) -> float:
    """Return the processor time of a process with one thread, to the nanosecond where `stat` counts hundredths."""
    return int((PROC / str(process) / "schedstat").read_text().split()[0]) / 1e9


def resident_mebibytes(process: int) -> float:
    resident = int((PROC / str(process) / "statm").read_text().split()[1])
    return resident * os.sysconf("SC_PAGE_SIZE") / 2**20


def proportional_mebibytes(process: int) -> float:
    """Return the memory of a process, with what it shares divided by the number of processes that share it."""
    lines = (PROC / str(process) / "smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
