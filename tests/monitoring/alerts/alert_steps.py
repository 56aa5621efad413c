"""Steps of the tests of alerts: a rule, a condition that comes and goes, and the messages that were sent."""

from typing import Any

import psycopg

from sereno import Sereno
from sereno.monitoring.alerts import operations as alerts
from sereno.monitoring.alerts.rule import AlertRule, AlertTarget
from sereno.notifications.deliveries import store as deliveries

SECRET = "whsec_" + "A" * 40

# A rule for paused channels only.
ONLY: dict[str, Any] = {"kinds": ["channel.paused"]}


def rule(app: Sereno, name: str = "ops", **options: Any) -> AlertRule:
    # No server listens there, so no message is delivered.
    given = {"targets": [AlertTarget(channel="discord", address="http://127.0.0.1:9/api/webhooks/1/x")], **options}
    made = AlertRule(name=name, **given)
    app.database.run(alerts.set_rule(made, actor="test"))
    return made


def pause_sms(app: Sereno, reason: str = "401: bad") -> None:
    app.database.run(deliveries.pause_channel("sms", "", reason))


def resume_sms(app: Sereno) -> None:
    app.database.run(deliveries.resume_channel("sms"))


def sent(connection: psycopg.Connection) -> list[str]:
    """Return the messages of the enqueued jobs, in order."""
    rows = connection.execute("select args ->> 'what' from sereno.jobs where task = 'sereno.alert' order by id")
    return [row[0] for row in rows]
