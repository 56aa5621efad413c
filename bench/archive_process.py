"""One archiver in a process of its own, so that the measured memory is only the archiver's."""

import asyncio
import json
import resource
import sys
import time

from sereno import Sereno
from sereno.archive.archiver import TOGETHER


async def main(url: str, directory: str) -> None:
    app = Sereno(url, archive_url=f"file://{directory}", archive_kinds=["jobs"])
    began = time.monotonic()
    archiver = app.archive.archiver()
    await archiver.move()
    moved = time.monotonic()
    done = await archiver.export()
    ended = time.monotonic()
    await app.aclose()
    # The sum of the peaks, as if they came at one moment: this process, and the largest file writer for each of them.
    memory = (_memory(resource.RUSAGE_SELF) + TOGETHER * _memory(resource.RUSAGE_CHILDREN)) / 1024
    figures = {"rows": done.rows, "bytes": done.bytes, "seconds": ended - moved, "moved_seconds": moved - began}
    print(json.dumps({**figures, "memory": memory, "problems": done.problems}))


def _memory(of: int) -> int:
    return resource.getrusage(of).ru_maxrss


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
