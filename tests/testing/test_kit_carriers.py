"""An application with a carried queue is tested without its carrier: jobs are stored and run in the kit."""

import importlib
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sereno import InvalidArguments, Sereno
from sereno.testing.kit import Kit

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
SHOP = "carried_shop"


@pytest.fixture
def carrier() -> Iterator[socket.socket]:
    """Listen where the carrier should be, to see whether anything connects to it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0)
        yield server


@pytest.fixture
def kit(
    database_url: str,
    sereno_kit: Callable[[Sereno], Kit],
    monkeypatch: pytest.MonkeyPatch,
    carrier: socket.socket,
) -> Iterator[Kit]:
    """The kit; at the end, nothing has connected to the carrier."""
    monkeypatch.setenv("SERENO_DATABASE_URL", database_url)
    monkeypatch.setenv("CARRIED_SHOP_PORT", str(carrier.getsockname()[1]))
    monkeypatch.syspath_prepend(str(HERE))
    sys.modules.pop(SHOP, None)
    made = sereno_kit(shop().app)
    yield made
    made.app.close()
    with pytest.raises(BlockingIOError):
        carrier.accept()


def shop() -> Any:
    """Return the module as this test imported it."""
    return importlib.import_module(SHOP)


def test_direct_jobs_are_stored_and_run(kit: Kit) -> None:
    job = shop().click.enqueue("home")
    assert job.id < 10**15
    assert kit.assert_enqueued("click", page="home").state == "ready"
    kit.app.enqueue_many([shop().click.job("a"), shop().click.using(direct=True).job("b")])
    assert [each.state for each in kit.drain().jobs] == ["succeeded"] * 3
    assert {each.args["page"] for each in kit.jobs("count", state="succeeded")} == {"home", "a", "b"}


def test_failures_are_retried(kit: Kit) -> None:
    job = shop().count.enqueue("broken")
    kit.drain()
    assert kit.job(job).state == "scheduled"
    kit.travel("11m")
    assert [each.state for each in kit.drain().failed] == ["dead"]


def test_the_rules_of_carried_queues_are_kept(kit: Kit) -> None:
    with pytest.raises(InvalidArguments, match="unique keys do not exist"):
        shop().click.using(unique_key="home").enqueue("home")


def test_a_killed_worker_does_not_use_the_carrier_either(kit: Kit, tmp_path: Path) -> None:
    marker = tmp_path / "began"
    job = shop().wait_for_ever.enqueue(str(marker))
    with kit.crash_worker(f"{SHOP}:app") as worker:
        worker.until(marker.exists)
        worker.kill()
    kit.lose_leases()
    kit.drain()
    assert kit.job(job).state == "succeeded"
    assert kit.job(job).attempt == 2
