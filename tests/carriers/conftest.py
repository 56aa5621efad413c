"""A NATS server for the tests of one process; each test has a prefix, and so streams, of its own."""

import uuid
from collections.abc import Iterator

import pytest

from sereno import JetStream
from sereno.carriers.local_server import LocalNats


@pytest.fixture(scope="session")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalNats]:
    """Return a running server that the tests share."""
    server = LocalNats(tmp_path_factory.mktemp("nats"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def jetstream(nats: LocalNats) -> JetStream:
    """Return a carrier whose streams belong to the test."""
    return JetStream(nats.url, prefix=f"test-{uuid.uuid4().hex[:12]}")
