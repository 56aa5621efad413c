"""Write src/sereno/database/schema.sql: the schema that all migrations create in an empty database.

    make schema

The file is for reading only; a test compares it with the migrations.
"""

import re
import subprocess
import tempfile
from pathlib import Path

import psycopg

from sereno.database.embedded import EmbeddedPostgres
from sereno.database.migrate import migrate

SCHEMA_FILE = Path(__file__).parents[1] / "src" / "sereno" / "database" / "schema.sql"

_TITLE = "-- The sum of the migrations, as pg_dump sees it. Written by `make schema`; read it, do not load it."

# Migrations create partitions from the current day on, so they differ between databases.
_DATED = re.compile(r"\b[a-z_]+_20\d{6}(_|\b)")

# Lines about pg_dump and its session, not about the schema.
_NOISE = re.compile(r"^(-- Dumped .*|\\(un)?restrict .*|SET .*;|SELECT pg_catalog\.set_config\(.*\);)\n", re.MULTILINE)


def dump(bin_dir: Path, url: str) -> str:
    """Return the schema of a database, without what differs between two databases with the same schema."""
    dumped = subprocess.run(
        [bin_dir / "pg_dump", "--schema-only", "--no-owner", "--no-privileges", "--dbname", url],
        check=True,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    ).stdout
    # pg_dump writes a title of three comment lines above each object.
    objects = re.split(r"^--\n-- .*\n--\n", dumped, flags=re.MULTILINE)
    cleaned = (_NOISE.sub("", text).strip() for text in objects if not _DATED.search(text))
    return "\n\n".join([_TITLE, *(text for text in cleaned if text)]) + "\n"


def reachable(directory: str) -> Path:
    """Make the directory accessible: started by root, the server runs as another user."""
    path = Path(directory)
    path.chmod(0o755)
    return path


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, EmbeddedPostgres(reachable(directory)) as server:
        with psycopg.connect(server.url, autocommit=True) as connection:
            migrate(connection)
        SCHEMA_FILE.write_text(dump(server.bin_dir, server.url))
    print(f"wrote {SCHEMA_FILE}")


if __name__ == "__main__":
    main()
