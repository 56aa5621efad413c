"""Settings are read from the environment: what was a constant of the original design is a variable."""

import os
import subprocess
import sys

import msgspec
import pytest

pytestmark = pytest.mark.slow

SHOW = """
import msgspec
from tenders.app import DETAIL_WAITS, PACE, app, push
table, = app.archive.tables
print(msgspec.json.encode({
    "rules": {name: new.when for name, new in app.schedules.declared.items() if "sweep" not in name},
    "days": [app.settings.keep_deliveries_days, app.settings.keep_events_days, table.age / 86400],
    "archive": [app.settings.archive_url, app.settings.archive_zone],
    "waits": [DETAIL_WAITS, push.delays, push.receipts_after, PACE.numbers],
}).decode())
"""


def test_what_was_a_constant_is_a_setting() -> None:
    given = {
        "TENDERS_INGEST_EVERY": "5m",
        "TENDERS_DISPATCH_EVERY": "30s",
        "TENDERS_RECEIPT_EVERY": "10m",
        "TENDERS_CLEANUP_CRON": "1 2 * * *",
        "TENDERS_ARCHIVE_EXPORT_CRON": "5 2 * * 0",
        "TENDERS_CRON_ZONE": "America/Punta_Arenas",
        "TENDERS_HOT_MONTHS": "6",
        "TENDERS_RETENTION_DAYS": "30",
        "TENDERS_ARCHIVE_URL": "s3://bucket/notichilec",
        "TENDERS_DETAIL_WAITS": "1s,2s",
        "TENDERS_PUSH_WAITS": "1m 5m",
        "TENDERS_RECEIPTS_AFTER": "20m",
        "TENDERS_API_PAUSE": "10s",
    }
    path = os.pathsep.join(each for each in sys.path if each)
    environment = {**os.environ, **given, "PYTHONPATH": path}
    ran = subprocess.run([sys.executable, "-c", SHOW], env=environment, check=True, stdout=subprocess.PIPE)
    shown = msgspec.json.decode(ran.stdout)
    zone = {"kind": "cron", "tz": "America/Punta_Arenas"}
    assert shown["rules"] == {
        "tenders.ingest": {"kind": "every", "interval": 300},
        "tenders.dispatch": {"kind": "every", "interval": 30},
        "tenders.receipt": {"kind": "every", "interval": 600},
        "sereno.archive_move": {"expression": "1 2 * * *"} | zone,
        "sereno.archive_export": {"expression": "5 2 * * 0"} | zone,
    }
    assert shown["days"] == [30, 182, 182.0]
    assert shown["archive"] == ["s3://bucket/notichilec", "America/Punta_Arenas"]
    assert shown["waits"][:3] == [[1.0, 2.0], [60.0, 300.0], 1200.0]
    assert shown["waits"][3]["period"] == 10.0
