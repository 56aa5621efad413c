"""Completion of a search and saved searches: a tenant's users see values and searches of their own only."""

import psycopg
import pytest

from sereno import Every, Sereno
from sereno.server.api.monitoring.search_lists import LISTS
from tests.server.api.conftest import Ask


@pytest.fixture
def jobs(app: Sereno) -> None:
    @app.task(name="billing.reconcile")
    def reconcile() -> None: ...

    @app.task(name="billing.remind")
    def remind() -> None: ...

    for task, tenant in ((reconcile, "ann"), (reconcile, "ann"), (remind, "bob"), (remind, None)):
        task.using(tenant=tenant, tags=[f"of-{tenant}"]).enqueue()
    app.schedules.upsert("sweep", reconcile.job(), Every("1h"))


def test_fields_and_values_complete_a_search(ask: Ask, jobs: None) -> None:
    client = ask("viewer")
    fields = {each["name"]: each for each in client.get("/searches/jobs/fields").json()["items"]}
    assert "dead" in fields["state"]["choices"]
    assert (fields["task"]["is_completed"], fields["created"]["is_completed"]) == (True, False)

    def values(field: str, begins: str = "", of: str = "jobs") -> list[str]:
        found = client.get(f"/searches/{of}/values", params={"field": field, "begins": begins})
        assert found.status_code == 200, found.text
        return list(found.json()["values"])

    assert values("task") == ["billing.reconcile", "billing.remind"]
    assert values("task", "billing.rem") == ["billing.remind"]
    assert values("tenant", "a") == ["ann"]
    assert values("tag", "of-b") == ["of-bob"]
    assert values("task", 'a "quoted" one') == []
    assert values("key", of="schedules") == ["sweep"]
    assert client.get("/searches/jobs/values", params={"field": "created"}).status_code == 404
    assert client.get("/searches/nothing/fields").status_code == 404


@pytest.mark.slow
def test_every_completed_field_of_every_list_can_be_read(ask: Ask, jobs: None) -> None:
    client = ask("viewer")
    for name, found in LISTS.items():
        for field in found.values:
            assert found.field(field) is not None, (name, field)
            for begins in ("", "a"):
                answer = client.get(f"/searches/{name}/values", params={"field": field, "begins": begins})
                assert answer.status_code == 200, (name, field, answer.text)


@pytest.mark.slow
def test_a_tenants_user_gets_values_of_that_tenant_only(ask: Ask, jobs: None) -> None:
    client = ask("viewer", tenant="ann")
    assert client.get("/searches/jobs/values", params={"field": "task"}).json()["values"] == ["billing.reconcile"]
    assert client.get("/searches/jobs/values", params={"field": "tenant"}).json()["values"] == ["ann"]
    for name, found in LISTS.items():
        assert client.get(f"/searches/{name}").status_code == (200 if found.of_tenants else 403), name


@pytest.mark.slow
def test_searches_are_saved_under_a_name_and_audited(ask: Ask, connection: psycopg.Connection) -> None:
    operator, viewer, tenant = ask("operator"), ask("viewer"), ask("operator", tenant="ann")
    body = {"text": "state:dead task:billing.*"}
    assert operator.put("/searches/jobs/dead bills", json=body).status_code == 200
    assert tenant.put("/searches/jobs/mine", json={"text": "state:dead"}).status_code == 200
    (saved,) = viewer.get("/searches/jobs").json()["items"]
    assert (saved["name"], saved["text"]) == ("dead bills", body["text"])
    assert [each["name"] for each in tenant.get("/searches/jobs").json()["items"]] == ["mine"]
    assert operator.put("/searches/jobs/dead bills", json={"text": "state:ready"}).json()["text"] == "state:ready"
    assert viewer.put("/searches/jobs/x", json=body).status_code == 403
    assert operator.put("/searches/jobs/x", json={"text": "stat:dead"}).status_code == 422
    assert tenant.delete("/searches/jobs/dead bills").status_code == 404
    assert operator.delete("/searches/jobs/dead bills").status_code == 204
    assert operator.delete("/searches/jobs/dead bills").status_code == 404
    actions = connection.execute("select action, subject from sereno.audit where action like 'search.%' order by id")
    assert actions.fetchall() == [
        ("search.save", "search jobs dead bills"),
        ("search.save", "search jobs mine"),
        ("search.save", "search jobs dead bills"),
        ("search.delete", "search jobs dead bills"),
    ]
