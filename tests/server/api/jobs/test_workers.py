"""Workers over HTTP."""

from tests.manual_worker import ManualWorker
from tests.server.api.conftest import Ask


def test_who_is_at_work(ask: Ask, manual: ManualWorker) -> None:
    session = manual.worker(queues={"default": 3})
    (line,) = ask("viewer").get("/workers").json()["items"]
    assert (line["id"], line["state"], line["queues"], line["tasks"]) == (session, "alive", {"default": 3}, 2)


def test_who_may_see_them(ask: Ask) -> None:
    assert ask(None).get("/workers").status_code == 401
    assert ask("admin", tenant="a").get("/workers").status_code == 403
    assert ask("viewer").get("/workers").json() == {"items": [], "next": None}
