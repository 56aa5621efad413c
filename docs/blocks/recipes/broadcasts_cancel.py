import asyncio

from letters import Letter, app, letter

# The event that was written above.
event = letter.notify(Letter("May"), subject="2031-05")


async def work(until: set[str]) -> None:
    """Run a worker until a delivery is delivered, and none is in these states."""
    async with app.working():
        while True:
            found = (await letter.astatus("2031-05")).deliveries
            if "delivered" in found and not until & found.keys():
                break
            await asyncio.sleep(0.1)
    await app.aclose()


asyncio.run(work(set()))
# the block of the page
asyncio.run(work({"pending", "sending"}))
assert cancelled.changed
states = {(line.state, line.reason): line.count for line in app.events.show(event).deliveries}
assert states.keys() <= {("delivered", None), ("skipped", "cancelled")}
assert states["delivered", None] >= cancelled.sent
app.close()
