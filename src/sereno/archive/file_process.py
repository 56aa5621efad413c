"""A process that writes and checks large files: `python -m sereno.archive.file_process`, with its order on stdin.

The libraries hold the GIL from the first row to the last: in the worker, leases would expire in the meantime, and two
files in parallel would be no faster than one after the other.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec

from sereno.archive import parquet
from sereno.archive.parquet import InvalidParquetFile
from sereno.archive.rows import FileMeasure, PlannedFile
from sereno.errors import ArchiveUnavailable

# Rows below which writing the file is faster than starting a process.
SMALL_ROWS = 20_000


def write(rows: int, planned: PlannedFile, file: Path, facts: Mapping[str, str]) -> FileMeasure:
    """Run `parquet.write`, in a process of its own if the file is large. Blocks."""
    if rows < SMALL_ROWS:
        return parquet.write(planned, file, facts)
    return msgspec.json.decode(_elsewhere(["write", asdict(planned), str(file), dict(facts)]), type=FileMeasure)


def checksums(rows: int, file: Path, key_columns: Sequence[str]) -> tuple[int, str, str]:
    """Run `parquet.checksums`, in a process of its own if the file is large. Blocks."""
    if rows < SMALL_ROWS:
        return parquet.checksums(file, key_columns)
    found, keys_hash, content_hash = json.loads(_elsewhere(["check", str(file), list(key_columns)]))
    return found, keys_hash, content_hash


def _elsewhere(order: list[Any]) -> str:
    """Return the output of the process that carries out this order."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "sereno.archive.file_process"],
        # On stdin, not as arguments: every user of the host can read those, and the URL has a password.
        input=json.dumps(order).encode(),
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path)},
        # Ctrl-C in a terminal reaches the whole process group, and the worker handles it.
        start_new_session=True,
        check=False,
    )
    output = done.stdout.decode(errors="replace").strip()
    if done.returncode:
        raise InvalidParquetFile(output or f"the process that handled the file exited with code {done.returncode}")
    return output


def main() -> int:
    what, *order = json.load(sys.stdin)
    try:
        if what == "check":
            sys.stdout.write(json.dumps(parquet.checksums(Path(order[0]), order[1])))
        else:
            planned, file, facts = order
            measured = parquet.write(PlannedFile(**planned), Path(file), facts)
            sys.stdout.write(msgspec.json.encode(measured).decode())
    except ArchiveUnavailable as error:
        sys.stdout.write(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
