"""One archivist in a process of its own, so that its memory is nobody else's."""

import asyncio
import json
import resource
import sys
import time

from sereno import Sereno


async def main(url: str, directory: str) -> None:
    app = Sereno(url, archive_url=f"file://{directory}", archive_kinds=["jobs"])
    began = time.monotonic()
    archivist = app.archive.archivist()
    await archivist.move()
    moved = time.monotonic()
    done = await archivist.export()
    ended = time.monotonic()
    await app.aclose()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    figures = {"rows": done.rows, "bytes": done.bytes, "seconds": ended - moved, "moved_seconds": moved - began}
    print(json.dumps({**figures, "memory": memory, "problems": done.problems}))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
