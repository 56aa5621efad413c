"""One address for both: `app = Sereno(address(engine))`.

Sessions and connections of SQLAlchemy need nothing from here: `task.using(session).enqueue(…)`.
"""

from psycopg import pq
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine

from sereno.errors import ConfigurationError


def address(engine: Engine | AsyncEngine) -> str:
    """Where an engine finds its database, for sereno's own connections. It holds the password: do not show it."""
    url = engine.url
    if url.get_backend_name() != "postgresql":
        raise ConfigurationError(f"sereno needs PostgreSQL: this engine is for {url.get_backend_name()}")
    query = dict(url.query)
    if "ssl" in query:
        # asyncpg's word for it.
        query["sslmode"] = query.pop("ssl")
    known = {option.keyword.decode() for option in pq.Conninfo.get_defaults()}
    kept = {name: value for name, value in query.items() if name in known}
    return url.set(drivername="postgresql", query=kept).render_as_string(hide_password=False)
