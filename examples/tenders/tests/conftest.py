"""Fixtures: empty tables, both sources and Expo on loopback, and a movable clock for each test."""

import io
import os
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import boto3
import psycopg
import pyarrow.parquet as pq
import pytest

from sereno import Sereno
from sereno.monitoring.verify import verify
from sereno.testing.expo import ExpoProvider
from sereno.testing.kit import Kit
from sereno.testing.provider import Provider
from tenders import phones
from tenders.app import app, install, published, push
from tenders.object_store import object_store
from tenders.phones import Phone
from tenders.preferences import Preferences
from tenders.stand_ins import Api, Authority, SearchPage
from tenders.tests.steps import Partner

TICKET = "CANARY-TICKET-0123456789"
ANA, BEN, CYD = (f"ExponentPushToken[{name}]" for name in ("ana", "ben", "cyd"))
# A push of 7 million in Biobío reaches both of them.
BENS = Preferences(regions=("Biobío",), amount_min=5_000_000)


@dataclass
class World:
    """The program, its partners, and queries on their state."""

    kit: Kit
    authority: Authority
    page: SearchPage
    api: Api
    expo: ExpoProvider

    @property
    def partners(self) -> dict[Partner, Provider]:
        return {"page": self.page, "api": self.api, "expo": self.expo}

    async def cycle(self) -> None:
        """Move the clock by two minutes and run all jobs, ingest first."""
        self.kit.travel("2m")
        await self.kit.adrain()

    async def until_receipts(self) -> None:
        """Move the clock until Expo has receipts, and by one more minute for the cycle that reads them."""
        for wait in ("16m", "1m"):
            self.kit.travel(wait)
            await self.kit.adrain()

    async def nights(self, count: int = 2) -> None:
        """Run `count` nights with their 03:17 and 03:47. Rows moved in one are exported in the next at the latest."""
        for _ in range(count):
            self.kit.travel("1d")
            await self.kit.adrain()

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """Query our tables and views, or sereno's; {sereno} stands for its schema."""
        with psycopg.connect(app.url, options="-csearch_path=tenders,public") as connection:
            return connection.execute(query.format(sereno=app.settings.schema).encode(), values).fetchall()

    def tenders(self) -> dict[str, tuple[Any, ...]]:
        """Return region, amount, buyer and `notified`, by code."""
        rows = self.rows("select code, region, amount, buyer, notified from tenders.tenders")
        return {code: tuple(rest) for code, *rest in rows}

    async def register(self, installation: str, token: str, preferences: Preferences | None = None) -> None:
        """Register a phone, or its new token and preferences."""
        async with await psycopg.AsyncConnection.connect(app.url) as connection:
            await phones.register(connection, installation, Phone(token), preferences or Preferences())

    def log_messages(self, event: str) -> list[str]:
        """Return messages of the central log."""
        return [text for (text,) in self.rows("select message from {sereno}.logs where event = %s", event)]

    def pushed(self) -> list[tuple[str, str]]:
        """Return (code, token) of every push that Expo accepted, sorted."""
        return sorted((message["data"]["code"], message["to"]) for message in self.expo.accepted)

    def states(self) -> dict[str, str]:
        """Return the state of the newest delivery of each installation."""
        return {each.recipient: each.state for each in self.kit.deliveries(published)}

    def check_invariants(self) -> None:
        """Check that `sereno verify --all` finds nothing."""
        broken = [
            result for result in app.database.run(verify(lease=app.settings.lease, window=None)) if not result.holds
        ]
        assert not broken


@pytest.fixture
async def world(
    sereno_kit: Callable[[Sereno], Kit], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> AsyncIterator[World]:
    kit = sereno_kit(app)
    # The time of the next receipt poll, left by the test before, whose clock was later.
    app.notifications.sender._recorder._requested_until.clear()  # noqa: SLF001 - the kit empties tables, not memory
    files = tmp_path.joinpath("archive").as_uri()
    app.override(archive_url=files)
    authority = Authority(kit.now)
    async with SearchPage(authority) as page, Api(authority, TICKET) as api, ExpoProvider() as expo:
        monkeypatch.setenv("TENDERS_ARCHIVE_URL", files)
        monkeypatch.setenv("TENDERS_SEARCH_URL", page.url)
        monkeypatch.setenv("TENDERS_API_URL", api.url)
        monkeypatch.setenv("TENDERS_API_TICKET", TICKET)
        monkeypatch.setenv("TENDERS_API_PAUSE", "10ms")
        monkeypatch.setenv("TENDERS_EXPO_URL", expo.url)
        app.channels.add(push, url=expo.url)
        async with await psycopg.AsyncConnection.connect(app.url) as connection:
            await connection.execute("drop schema if exists tenders cascade")
            await install(connection)
        await app.adeclare()
        # The declared rate is that of the real API.
        await app.limits.aset("tenders.api", rate=1000)
        world = World(kit, authority, page, api, expo)
        await world.register("ana", ANA)
        await world.register("ben", BEN, BENS)
        yield world
        await app.aclose()


@pytest.fixture
def without_certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip loading CA certificates in the many processes of a test: no connection uses TLS."""
    monkeypatch.setenv("SSL_CERT_FILE", os.devnull)
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))


class Bucket:
    """Reads the bucket without any code of sereno."""

    def __init__(self, name: str, environment: dict[str, str]) -> None:
        self.name = name
        self.client: Any = boto3.client(
            "s3",
            endpoint_url=environment["AWS_ENDPOINT_URL"],
            region_name=environment["AWS_REGION"],
            aws_access_key_id="any-key",
            aws_secret_access_key="any-secret",  # noqa: S106 - moto accepts any
        )

    def bodies(self, kind: str, ending: str = ".parquet") -> list[bytes]:
        found = self.client.list_objects_v2(Bucket=self.name, Prefix=f"cold/{kind}/").get("Contents", [])
        names = [each["Key"] for each in found if each["Key"].endswith(ending)]
        return [self.client.get_object(Bucket=self.name, Key=name)["Body"].read() for name in names]

    def rows(self, kind: str) -> list[dict[str, Any]]:
        return [row for body in self.bodies(kind) for row in pq.read_table(io.BytesIO(body)).to_pylist()]


@pytest.fixture
def bucket(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    name = f"tenders-{uuid4().hex}"
    with object_store(name) as environment:
        for variable, value in (environment | {"TENDERS_ARCHIVE_URL": f"s3://{name}/cold"}).items():
            monkeypatch.setenv(variable, value)
        app.override(archive_url=f"s3://{name}/cold")
        yield Bucket(name, environment)
