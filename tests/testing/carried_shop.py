"""An application with a carried queue, as a user's tests import it. CARRIED_SHOP_PORT: of its carrier."""

import os
import time
from pathlib import Path

from sereno import Backoff, JetStream, Sereno

app = Sereno()
app.queue("clicks", carrier=JetStream(f"nats://127.0.0.1:{os.environ['CARRIED_SHOP_PORT']}", replicas=3), direct=True)


@app.task(queue="clicks", history=False)
async def click(page: str) -> None:
    await count.aenqueue(page)


@app.task(queue="clicks", retry=Backoff(1, delays=["10m"]))
def count(page: str) -> str:
    if page == "broken":
        raise ValueError("no such page")
    return page


@app.task(queue="clicks")
def wait_for_ever(marker: str) -> None:
    """Wait until a file of that name with the suffix .end exists."""
    path = Path(marker)
    if path.exists():
        return
    path.write_text("began")
    while not path.with_suffix(".end").exists():
        time.sleep(0.01)
