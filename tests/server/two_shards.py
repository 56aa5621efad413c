"""Two databases, and one server that shows both of them read-only."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import httpx

from sereno import Sereno
from sereno.access.operations import create
from sereno.server.sharded import sharded
from tests.databases import DatabasePool
from tests.plain_http import NO_CERTIFICATES
from tests.server.api.adapters import known_types
from tests.serving import Serving


class TwoShards:
    """`apps["a"]` and `apps["b"]` write; the server at `url` reads. `a` is the first shard, which has the tokens."""

    def __init__(self, apps: dict[str, Sereno], url: str) -> None:
        self.apps = apps
        self.url = url

    def token(self, shard: str = "a", role: str = "admin", tenant: str | None = None) -> str:
        name = f"{role} {tenant}"
        return self.apps[shard].database.run(create(name, role, tenant=tenant, actor="test")).secret

    def client(self, token: str | None = None) -> httpx.Client:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=30, verify=NO_CERTIFICATES, trust_env=False)


@contextmanager
def two_shards(first: Sereno, second_url: str, **settings: Any) -> Iterator[TwoShards]:
    urls = {"a": first.url, "b": second_url}
    with (
        closing(Sereno(second_url)) as second,
        closing(Sereno(urls["a"], read_only=True, **settings)) as shown_first,
        closing(Sereno(urls["b"], read_only=True, **settings)) as shown_second,
    ):
        with known_types():
            inside = sharded({"a": shown_first, "b": shown_second})
        serving = Serving(inside, log_level="error")
        try:
            yield TwoShards({"a": first, "b": second}, serving.url)
        finally:
            serving.stop()


@contextmanager
def second_database(databases: DatabasePool) -> Iterator[str]:
    database = databases.take(databases.template_of_today())
    yield database.url
    databases.give_back(database)
