"""The database URL of a SQLAlchemy engine, for sereno: `app = Sereno(address(engine))`.

To enqueue with a session or connection of SQLAlchemy, nothing from here is needed: `task.using(session).enqueue(…)`.
"""

from psycopg import pq
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine

from sereno.errors import ConfigurationError


def address(engine: Engine | AsyncEngine) -> str:
    """Return the database URL of an engine, for sereno's own connections. It contains the password: do not show it."""
    url = engine.url
    if url.get_backend_name() != "postgresql":
        raise ConfigurationError(f"sereno needs PostgreSQL: this engine is for {url.get_backend_name()}")
    query = dict(url.query)
    if "ssl" in query:
        # asyncpg calls this parameter ssl, libpq sslmode.
        query["sslmode"] = query.pop("ssl")
    known = {option.keyword.decode() for option in pq.Conninfo.get_defaults()}
    valid = {name: value for name, value in query.items() if name in known}
    return url.set(drivername="postgresql", query=valid).render_as_string(hide_password=False)
