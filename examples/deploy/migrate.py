"""Bring the database of an example up to date, before every rollout; safe to repeat.

    python -m deploy.migrate tenders

The schema of sereno, the rights of each role, the example's own tables and views, and a first token. The login is that
of SERENO_DATABASE_URL.
"""

import sys
from pathlib import Path

import psycopg

from sereno import Sereno
from sereno.access.authentication import token_status
from sereno.cli.main import main as sereno


def migrate(example: Path) -> None:
    app = Sereno()
    run("migrate")
    run("migrate", "--roles", "create")
    with psycopg.connect(app.url) as connection:
        for file in (example / "schema.sql", example / "views.sql"):
            if file.is_file():
                connection.execute(file.read_bytes())
                print(f"Applied {file}.")
    if not app.database.run(token_status()).was_created:
        print("The token of an administrator, for the pages and the API; it is shown once:", flush=True)
        run("token", "create", "administrator", "--role", "admin")
    app.close()


def run(*words: str) -> None:
    """Run a command of sereno, which ends with an exit code."""
    try:
        sereno(words, prog_name="sereno")
    except SystemExit as end:
        if end.code:
            raise


if __name__ == "__main__":
    migrate(Path(sys.argv[1]))
