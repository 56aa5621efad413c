import asyncio
from dataclasses import dataclass

import clock  # checks itself when it is imported, like stock
import psycopg
import stock
from orders import app, kit, url

from sereno import in_app
from sereno.channels.expo import Expo
from sereno.channels.twilio import Twilio
from sereno.testing.expo import ExpoProvider
from sereno.testing.twilio import TwilioProvider


@dataclass
class Tender:
    code: str
    region: str
    amount: int


# the block of the page


async def main() -> None:
    await app.recipients.aupsert("ada", {"expo": "ExponentPushToken[ada]", "sms": "+37120000001"})
    await app.recipients.aupsert("bob", {"expo": "ExponentPushToken[bob]", "sms": "+37120000002"})
    async with ExpoProvider() as expo_here, TwilioProvider() as twilio_here:
        app.channels.add(expo, url=expo_here.url)
        app.channels.add(sms, **twilio_here.account)
        expo_here.receipts_of["ExponentPushToken[bob]"] = "DeviceNotRegistered"
        async with await psycopg.AsyncConnection.connect(url) as conn:
            await conn.execute("create table tenders (code text primary key)")
            await publish(Tender("T-1", "RM", 70_000), conn)
        await kit.adrain()
        assert len(expo_here.accepted) == 2
        assert not twilio_here.sent
        for _ in range(2):
            kit.travel("16m")
            await kit.adrain()
        assert [form["To"] for form in twilio_here.sent.values()] == ["+37120000002"]
        assert await app.inbox.aunread("ada") == 1
    await app.aclose()


asyncio.run(main())
