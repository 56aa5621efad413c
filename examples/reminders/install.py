"""The schema of sereno, and the tables and views of this program. Repeatable: `python -m reminders.install`."""

from pathlib import Path

import psycopg

from reminders.app import app
from sereno import Sereno

HERE = Path(__file__).parent


def create_tables(to: Sereno) -> None:
    """Create or update the tables and the views; sereno has its schema already."""
    with psycopg.connect(to.url) as connection:
        for name in ("schema.sql", "views.sql"):
            connection.execute((HERE / name).read_text().replace("sereno.", f"{to.settings.schema}.").encode())


if __name__ == "__main__":
    app.migrate()
    create_tables(app)
    app.close()
