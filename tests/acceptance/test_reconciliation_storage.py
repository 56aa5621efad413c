"""The files of the reconciliation example in a bucket: a real server of the S3 protocol, given by a URL."""

import os
import urllib.request
from collections.abc import Iterator

import pytest
from moto.server import ThreadedMotoServer
from reconciliation import settings, storage
from reconciliation.storage import StorageError

pytestmark = pytest.mark.slow

CANARY = "canary+secret/0123456789abcdef"


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of an empty bucket."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    endpoint = "http://{}:{}".format(*server.get_host_and_port())
    environment = {"ENDPOINT_URL": endpoint, "ALLOW_HTTP": "true", "REGION": "us-east-1"}
    for name, value in (environment | {"ACCESS_KEY_ID": "key", "SECRET_ACCESS_KEY": CANARY}).items():
        monkeypatch.setenv(f"AWS_{name}", value)
    urllib.request.urlopen(urllib.request.Request(f"{endpoint}/books", method="PUT"))  # noqa: S310 - on loopback
    monkeypatch.setattr(settings, "STORAGE", "s3://books/reports")
    yield settings.STORAGE
    storage._opened.cache_clear()
    server.stop()


async def test_files_are_written_read_and_deleted_in_a_bucket(bucket: str) -> None:
    path = storage.path_of("a-1", "2026-10", 4711)
    for content in (b"first", b"second" * 100_000):
        checksum = await storage.put(path, content)
        assert len(checksum) == 64
        assert await storage.get(path) == content
    await storage.delete(path)
    await storage.delete(path)
    with pytest.raises(StorageError, match=r"could not read a-1/2026-10/4711\.csv") as caught:
        await storage.get(path)
    assert CANARY not in str(caught.value)
