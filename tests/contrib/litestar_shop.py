"""The shop of `fastapi_shop` on Litestar."""

import os

from litestar import Litestar, get, post
from litestar.exceptions import ClientException
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.pool import NullPool

from sereno import Sereno
from sereno.contrib.litestar import lifespan, mount
from sereno.server import asgi
from tests.jobs.enqueue.ways import sqlalchemy_url

app = Sereno()
engine = create_async_engine(sqlalchemy_url(os.environ["SERENO_DATABASE_URL"], "psycopg"), poolclass=NullPool)


@app.task
async def confirm(order: int) -> None:
    async with engine.begin() as connection:
        await connection.execute(text("update orders set confirmed = true where id = :id"), {"id": order})


@post("/orders", status_code=200)
async def order(total: int) -> int:
    async with AsyncSession(engine) as session, session.begin():
        made = await session.execute(text("insert into orders (total) values (:total) returning id"), {"total": total})
        number: int = made.scalar_one()
        await confirm.using(session).aenqueue(number)
        if total < 0:
            raise ClientException("we give nothing away", status_code=422)
        return number


@get("/tools/other")
async def other() -> str:
    return "theirs"


dashboard = asgi(app)
api = Litestar([order, other, mount("/tools/sereno", dashboard)], lifespan=[lifespan(app, work=True, server=dashboard)])
