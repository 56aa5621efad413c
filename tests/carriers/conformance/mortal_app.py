"""An application whose worker is killed. Its handlers write to a table; one of them waits for a file."""

from pathlib import Path

from sereno import Sereno
from tests.facts import auntil

app = Sereno()


@app.task(queue="work", history=False)
async def write(number: int) -> None:
    async with app.database.aconnection() as connection:
        await connection.execute("insert into effects values (%s)", [number])


@app.task(queue="work", history=False, timeout="5m")
async def wait(number: int, path: str) -> None:
    await write.definition.function(number)
    await auntil(Path(path).exists, timeout=300.0)
