"""Workers over HTTP: users of all tenants list them."""

from tests.manual_worker import ManualWorker
from tests.server.api.conftest import Ask


def test_workers_are_listed(ask: Ask, manual: ManualWorker) -> None:
    session = manual.worker(queues={"default": 3})
    (line,) = ask("viewer").get("/workers").json()["items"]
    assert (line["id"], line["state"], line["queues"], line["tasks"]) == (session, "alive", {"default": 3}, 2)


def test_roles_for_workers(bare_ask: Ask) -> None:
    assert bare_ask(None).get("/workers").status_code == 401
    assert bare_ask("admin", tenant="a").get("/workers").status_code == 403
    assert bare_ask("viewer").get("/workers").json() == {"items": [], "next": None}
