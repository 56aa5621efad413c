"""A shop on FastAPI: a worker in its process, the dashboard under a path, orders and jobs in one transaction."""

import os
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.pool import NullPool

from sereno import Sereno
from sereno.contrib.asgi import lifespan
from sereno.server import asgi
from tests.jobs.enqueue.ways import sqlalchemy_url

app = Sereno()
engine = create_async_engine(sqlalchemy_url(os.environ["SERENO_DATABASE_URL"], "psycopg"), poolclass=NullPool)


@app.task
async def confirm(order: int) -> None:
    async with engine.begin() as connection:
        await connection.execute(text("update orders set confirmed = true where id = :id"), {"id": order})


dashboard = asgi(app)
api = FastAPI(lifespan=lifespan(app, work=True, server=dashboard))
api.mount("/tools/sereno", dashboard)


async def transaction() -> AsyncIterator[AsyncSession]:
    async with AsyncSession(engine) as session, session.begin():
        yield session


# Committed before the response is sent.
Transaction = Annotated[AsyncSession, Depends(transaction, scope="function")]


@api.post("/orders")
async def order(total: int, session: Transaction) -> int:
    made = await session.execute(text("insert into orders (total) values (:total) returning id"), {"total": total})
    number: int = made.scalar_one()
    await confirm.using(session).aenqueue(number)
    if total < 0:
        raise HTTPException(422, "we give nothing away")
    return number
