"""Run the stand-ins of an example until TERM, with the data and the traffic of its demo.

    python -m deploy.stand_ins tenders FILE

They listen on loopback. FILE gets the variables that lead to them, as shell commands that leave other values alone.
"""

import asyncio
import importlib
import shlex
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from sereno.cli.context import load_app


async def run(example: str, file: Path) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    demo = importlib.import_module(f"{example}.demo")
    app = load_app(demo.APP)
    async with demo.stage(app) as environment:
        # Complete, or not there: it may be read at any time.
        incomplete = file.with_suffix(".new")
        incomplete.write_text(commands(environment))
        incomplete.replace(file)
        print(f"The stand-ins of {example} listen: {', '.join(environment)}", flush=True)
        await stop.wait()
    await app.aclose()


def commands(environment: Mapping[str, str]) -> str:
    """Return a command for each variable: what the service sets itself is kept."""
    return "".join(
        f'[ -n "${{{name}+set}}" ] || export {name}={shlex.quote(value)}\n' for name, value in environment.items()
    )


if __name__ == "__main__":
    place = Path(sys.argv[2])
    # Of stand-ins that were killed.
    place.unlink(missing_ok=True)
    try:
        asyncio.run(run(sys.argv[1], place))
    finally:
        place.unlink(missing_ok=True)
