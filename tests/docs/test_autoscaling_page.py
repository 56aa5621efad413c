"""The ScaledObject of docs/operate/autoscaling.md asks for an address that exists, and for a number in its response."""

import httpx
import psycopg
import yaml

from sereno import Sereno
from sereno.server import asgi
from tests.docs.pages import ROOT, only
from tests.facts import TIMEOUT
from tests.jobs.job_steps import add
from tests.plain_http import NO_CERTIFICATES
from tests.serving import Serving

PAGE = ROOT / "docs" / "operate" / "autoscaling.md"
TOKEN = "m" * 40


def test_the_trigger_reads_the_number_of_wanted_workers(app: Sereno, connection: psycopg.Connection) -> None:
    authentication, scaled = yaml.safe_load_all(only(PAGE, "yaml"))
    (trigger,) = scaled["spec"]["triggers"]
    assert trigger["authenticationRef"]["name"] == authentication["metadata"]["name"]
    assert (trigger["type"], trigger["metadata"]["authMode"]) == ("metrics-api", "bearer")
    add(connection, 45, queue="mails")
    app.override(metrics_token=TOKEN)
    serving = Serving(asgi(app), log_level="error")
    try:
        address = trigger["metadata"]["url"].replace("http://sereno-server", serving.url)
        headers = {"Authorization": f"Bearer {TOKEN}"}
        response = httpx.get(address, headers=headers, timeout=TIMEOUT, trust_env=False, verify=NO_CERTIFICATES)
    finally:
        serving.stop()
    assert response.status_code == 200, response.text
    assert response.json()[trigger["metadata"]["valueLocation"]] == 3
