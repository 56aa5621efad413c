"""The commands that prepare a deployment, as they are printed in the README."""

import aiohttp
import pytest

from separate_worker.tests.conftest import scalar
from separate_worker.tests.processes import Processes
from separate_worker.tests.test_webhooks import created, post
from sereno.testing.kit import Kit

pytestmark = pytest.mark.slow

INSTALL = "separate_worker.install"


async def test_an_organisation_and_its_integration_are_added_by_command(
    kit: Kit, processes: Processes, http: aiohttp.ClientSession
) -> None:
    # Repeatable, with data in the tables.
    for _ in range(2):
        code, text = await processes.run(INSTALL, "tables")
        assert code == 0, text
    assert await scalar("select count(*) from separate_worker.organisations") == 2
    code, text = await processes.run(INSTALL, "organisation", "initech")
    assert code == 0, text
    key = text.split()[-1]
    lead = {"reference": "form-1", "email": "ada@example.org"}
    async with http.post("/api/leads", json=lead, headers={"Authorization": f"Bearer {key}"}) as answer:
        assert answer.status == 202
    code, text = await processes.run(INSTALL, "integration", "crm-of-initech", "initech")
    assert code == 0, text
    assert (await post(http, text.split()[-1], created("form-2"), "msg_1", where="crm-of-initech"))[0] == 202
    assert await scalar("select count(*) from separate_worker.webhook_messages where organisation = 'initech'") == 1
