"""Connections and credentials of accounts, cached for each event loop."""

import asyncio
from collections.abc import Mapping
from time import monotonic
from typing import Any

from sereno.channels.contract import Exchange
from sereno.database.database import Database
from sereno.notifications.deliveries import store as deliveries

# Seconds for which credentials are cached; changed ones are used after this time.
ACCOUNT_SECONDS = 30.0


class Exchanges:
    """The exchanges with providers, by channel and account. `accounts`: settings of the application, by channel."""

    def __init__(self, database: Database, accounts: Mapping[str, Mapping[str, Any]]) -> None:
        self._database = database
        self._accounts = accounts
        self._exchanges: dict[tuple[asyncio.AbstractEventLoop, str, str], tuple[float, Exchange]] = {}

    async def find(self, channel: str, account: str) -> Exchange | None:
        """Return the exchange of an account; None for an account without settings.

        A tenant's settings replace the application's: its secrets are never sent to an address that a tenant chose.
        """
        place = (asyncio.get_running_loop(), channel, account)
        until, exchange = self._exchanges.get(place, (0.0, None))
        if exchange is not None and until > monotonic():
            return exchange
        defaults = self._accounts.get(channel, {})
        settings = await self._database.arun_one(deliveries.account_settings(channel, account)) if account else defaults
        if account and not settings:
            return None
        # Another coroutine may have created it during the query; reuse its connections.
        exchange = self._exchanges[place][1] if place in self._exchanges else Exchange()
        exchange.account, exchange.own, exchange.private = settings, bool(account), bool(defaults.get("private"))
        self._exchanges[place] = (monotonic() + ACCOUNT_SECONDS, exchange)
        return exchange

    async def close(self) -> None:
        """Close the connections of this event loop."""
        loop = asyncio.get_running_loop()
        for place in [place for place in self._exchanges if place[0] is loop or place[0].is_closed()]:
            _, exchange = self._exchanges.pop(place)
            if place[0] is loop:
                await exchange.close()
