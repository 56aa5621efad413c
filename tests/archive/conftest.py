"""A directory for files; a real object store, and a faulty proxy in front of it."""

import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

from sereno.archive import storage as module
from tests.archive.archive_steps import cold_place
from tests.archive.faulty_storage import FaultyStore

# A secret that must not appear anywhere.
CANARIES = {"AWS_ACCESS_KEY_ID": "CANARYKEYID0123456789", "AWS_SECRET_ACCESS_KEY": "canary+secret/0123456789abcdef"}


@dataclass(frozen=True, slots=True)
class Bucket:
    """`url`: as in the settings. `store`: the proxy between sereno and the bucket."""

    url: str
    name: str
    store: FaultyStore
    endpoint: str

    def copied(self, directory: Path) -> Path:
        """Copy all objects, without the proxy and without sereno's code."""
        client = self._client()
        for each in client.list_objects_v2(Bucket=self.name).get("Contents", []):
            path = directory / each["Key"].removeprefix("cold/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(client.get_object(Bucket=self.name, Key=each["Key"])["Body"].read())
        return directory

    def delete(self, name: str) -> None:
        self._client().delete_object(Bucket=self.name, Key=f"cold/{name}")

    def _client(self) -> Any:
        return boto3.client("s3", endpoint_url=self.endpoint, region_name="us-east-1")


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory for archived files that does not exist yet."""
    with cold_place() as path:
        yield path


@pytest.fixture(scope="session")
def s3_server() -> Iterator[tuple[str, int]]:
    """A real server of the S3 protocol."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    yield server.get_host_and_port()
    server.stop()


@pytest.fixture
def bucket(s3_server: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """A bucket of the test's own; a failed request is retried once."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    store = FaultyStore(s3_server)
    environment = {"AWS_ENDPOINT_URL": store.url, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1"}
    for name, value in (environment | CANARIES).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(module, "MOST_TRIES", 1)
    name = f"test-{uuid.uuid4().hex[:12]}"
    made = Bucket(f"s3://{name}/cold", name, store, "http://{}:{}".format(*s3_server))
    boto3.client("s3", endpoint_url=made.endpoint, region_name="us-east-1").create_bucket(Bucket=name)
    yield made
    store.close()
