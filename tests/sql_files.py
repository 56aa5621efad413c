"""The SQL files beside the modules."""

from pathlib import Path

SOURCES = Path(__file__).parents[1] / "src" / "sereno"
# Holds scripts that are run as a whole.
_SCRIPTS = SOURCES / "database"


def query_files() -> list[str]:
    """Return every file of named queries or fragments, as `queries` takes it: `jobs/transitions`."""
    files = [file for file in SOURCES.rglob("*.sql") if file.parent.name != "migrations"]
    scripts = {_SCRIPTS / "schema.sql", _SCRIPTS / "roles.sql"}
    return sorted(str(file.relative_to(SOURCES).with_suffix("")) for file in files if file not in scripts)
