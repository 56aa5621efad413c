import asyncio

from letters import Letter, app, letter


async def send() -> int:
    """Send an event to all; return its id."""
    event = await letter.anotify(Letter("April"), subject="2031-04")
    async with app.working():
        while (status := await letter.astatus("2031-04")).deliveries != {"delivered": 40}:
            await asyncio.sleep(0.1)
    await app.aclose()
    return event


event = asyncio.run(send())
# the block of the page
tallies = app.events.show(event).variants
assert [tally.variant for tally in tallies] == ["long", "short"]
assert sum(tally.delivered for tally in tallies) == 40
app.close()
