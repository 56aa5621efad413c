import psycopg
from first import app

from sereno.testing.kit import Kit

url = app.url
kit = Kit(app)
with psycopg.connect(url) as connection:
    connection.execute("create table orders (id bigint generated always as identity primary key, total integer)")


@app.task
def confirm(order: int) -> None: ...


# the block of the page
    kit.assert_not_enqueued(confirm)
kit.assert_enqueued(confirm, order=order, times=1)
with psycopg.connect(url) as connection:
    confirm.using(connection).enqueue(2)
    connection.rollback()
kit.assert_not_enqueued(confirm, order=2)
