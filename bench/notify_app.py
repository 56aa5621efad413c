"""Two processes of the notification benchmark: the application with its worker, and a provider on this machine.

`python -m bench.notify_app worker URL PROVIDER` runs until SIGTERM; `python -m bench.notify_app provider` prints its
address first.
"""

import asyncio
import signal
import sys
from dataclasses import dataclass

from sereno import Content, Recipient, Sereno
from sereno.channels.expo import Expo
from sereno.notifications.client import QUEUE, Event
from sereno.testing.expo import ExpoProvider

SLOTS = 10


@dataclass(frozen=True)
class Tender:
    """What people hear of."""

    code: str
    region: str
    amount: int


class LocalExpo(Expo):
    """As fast as it goes: the pace of the real one is a limit like any other."""

    rate = None  # type: ignore[assignment]  # the real one's is a number
    at_once = 6


def declare(app: Sereno) -> Event[Tender]:
    """The one event, in a few words."""
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
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
    await worker.run()


async def provide() -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    async with ExpoProvider() as provider:
        print(provider.url, flush=True)
        await ended.wait()


def main(what: str, *arguments: str) -> None:
    life = work(*arguments) if what == "worker" else provide()
    try:
        import uvloop  # noqa: PLC0415 - used where it is installed
    except ImportError:
        asyncio.run(life)
    else:
        uvloop.run(life)


if __name__ == "__main__":
    main(*sys.argv[1:])
