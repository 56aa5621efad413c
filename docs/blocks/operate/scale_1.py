import os

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from sereno import Sereno

# Two databases beside the one of the test.
SERVER = os.environ["SERENO_DATABASE_URL"]
NAMES = {name: f"{conninfo_to_dict(SERVER)['dbname']}_{name}" for name in ("a", "b")}
for shard, database in NAMES.items():
    with psycopg.connect(SERVER, autocommit=True) as connection:
        connection.execute(sql.SQL("create database {}").format(sql.Identifier(database)))
    url = SERVER.replace(f"/{conninfo_to_dict(SERVER)['dbname']}?", f"/{database}?", 1)
    os.environ[f"SHARD_{shard.upper()}"] = url
    made = Sereno(url)
    made.migrate()
    made.close()


@pytest.fixture(autouse=True, scope="module")
def _databases():
    yield
    for app in SHARDS.values():
        app.close()
    with psycopg.connect(SERVER, autocommit=True) as connection:
        for database in NAMES.values():
            connection.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(database)))


# the block of the page
