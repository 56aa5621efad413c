from zoneinfo import ZoneInfo

from books import reconcile
from orders import app, kit

from sereno import Daily

account = "r42"
# the block of the page


at = app.schedules.get("reconcile:r42").next_run_at.astimezone(ZoneInfo("America/Sao_Paulo"))
assert at.hour == 3, at
assert at.minute < 20, at
kit.travel("1d")
kit.drain()
kit.assert_enqueued(reconcile, tenant="r42", account="r42", month=f"{at:%Y-%m}")
