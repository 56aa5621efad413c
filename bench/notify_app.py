"""Two processes of the notification benchmark: the application with its worker, and a provider on this machine.

`python -m bench.notify_app worker URL PROVIDER` and `python -m bench.notify_app provider` run until SIGTERM; the
provider prints its address first.
"""

import asyncio
import gc
import signal
import sys
from dataclasses import dataclass

from bench import notify_provider
from sereno import Content, Recipient, Sereno
from sereno.channels.expo import Expo
from sereno.notifications.event_handle import Event
from sereno.notifications.jobs import QUEUE

SLOTS = 10


@dataclass(frozen=True)
class Tender:
    """Payload of the event."""

    code: str
    region: str
    amount: int


class LocalExpo(Expo):
    """Expo without its rate limit, which would be what is measured."""

    rate = None  # type: ignore[assignment]  # the real channel's rate is a number
    at_once = 6


def declare(app: Sereno) -> Event[Tender]:
    """Declare the event with a short template."""
    published = app.event("tender.published", Tender, channels=[LocalExpo()], category="tenders")

    @published.template()
    def _(tender: Tender, to: Recipient) -> Content:
        return Content(f"Tender {tender.code}", f"{tender.region}: {tender.amount:,} for {to.key}")

    return published


async def work(url: str, provider: str) -> None:
    app = Sereno(url)
    declare(app)
    app.channels.accounts["expo"] = {"url": provider}
    worker = app.worker({QUEUE: SLOTS})
    # As `sereno worker` does.
    gc.collect()
    gc.freeze()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
    await worker.run()


async def provide() -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    await notify_provider.provide(ended)


def main(role: str, *arguments: str) -> None:
    process = work(*arguments) if role == "worker" else provide()
    try:
        import uvloop  # noqa: PLC0415 - used where it is installed
    except ImportError:
        asyncio.run(process)
    else:
        uvloop.run(process)


if __name__ == "__main__":
    main(*sys.argv[1:])
