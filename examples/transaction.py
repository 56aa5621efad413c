"""An order and its job, written together or not at all; and a handler whose write happens exactly once.

sereno worker examples/transaction.py:app --embedded
python examples/transaction.py
"""

import psycopg

from sereno import Context, Sereno

app = Sereno()


@app.task
async def confirm(ctx: Context, order: int) -> None:
    # The commit of this block is also the success of the job: both happen, or neither does.
    async with ctx.transaction() as connection:
        await connection.execute("insert into confirmations (order_id) values (%s)", [order])


def place_order(connection: psycopg.Connection, total: int) -> int:
    with connection.transaction():
        row = connection.execute("insert into orders (total) values (%s) returning id", [total]).fetchone()
        assert row is not None
        confirm.using(connection).enqueue(row[0])
    return int(row[0])


if __name__ == "__main__":
    with psycopg.connect(app.database.url, autocommit=True) as own:
        own.execute("create table if not exists orders (id bigint generated always as identity primary key, total int)")
        own.execute("create table if not exists confirmations (order_id bigint)")
        print(f"order {place_order(own, 42)} is placed, and will be confirmed")
