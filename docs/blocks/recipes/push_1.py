import asyncio

from alarms import Alarm
from cautious import CautiousExpo

from sereno import Sereno
from sereno.testing.expo import ExpoProvider

app = Sereno()
cautious = CautiousExpo()
cautious.receipts_after = 1.0
noise = app.event("noise", Alarm, channels=[cautious])


async def main() -> None:
    # the block of the page
        app.channels.add(cautious, url=expo_here.url)
        async with app.working():
            for name in ("gone", "late", "well"):
                await app.recipients.aupsert(name, {"expo": f"ExponentPushToken[{name}]"})
            await become("well", "unknown")
            expo_here.fault = None
            await become("gone", "invalid")
            await become("well", "delivered")
            await become("late", "sent")
            assert [token for asked in expo_here.batches() for token in asked].count("ExponentPushToken[well]") == 2
    await app.aclose()


async def become(name: str, state: str) -> None:
    key = f"{name} {state}"
    await noise.anotify(Alarm("cellar"), subject=key, to=name)
    while (await noise.astatus(key)).deliveries != {state: 1}:
        await asyncio.sleep(0.05)


asyncio.run(main())
