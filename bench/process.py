"""What the kernel knows of a process: its processor time, its memory, its children."""

import os
from pathlib import Path

PROC = Path("/proc")


def family(process: int) -> list[int]:
    """The process and everything that it started, which includes the children of a supervisor."""
    found = [process]
    for task in (PROC / str(process) / "task").iterdir():
        for child in (task / "children").read_text().split():
            found += family(int(child))
    return found


def processor_seconds(process: int) -> float:
    # The command in the second field may hold spaces and brackets; what counts comes after its end.
    fields = (PROC / str(process) / "stat").read_text().rpartition(")")[2].split()
    user, system = int(fields[11]), int(fields[12])
    return (user + system) / os.sysconf("SC_CLK_TCK")


def resident_mebibytes(process: int) -> float:
    resident = int((PROC / str(process) / "statm").read_text().split()[1])
    return resident * os.sysconf("SC_PAGE_SIZE") / 2**20
