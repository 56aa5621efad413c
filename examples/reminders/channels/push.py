"""Push to phones by Expo. The fallback is the inbox of the same app."""

from typing import ClassVar

from reminders.channels import Way
from reminders.settings import DELAYS, FALLBACK_AFTER, account, setting
from sereno import in_app
from sereno.channels.expo import Expo

# Seconds until Expo has the receipt of Apple or Google.
RECEIPTS_AFTER = float(setting("REMINDERS_EXPO_RECEIPTS_AFTER", "900"))


class Push(Expo):
    name: ClassVar[str] = "push"
    delays = DELAYS
    receipts_after = RECEIPTS_AFTER


channel = Push()
way = Way(
    channel,
    account("EXPO", "access_token", "url"),
    # Only the receipt says that the device still exists, so the fallback waits for it.
    channel.then(in_app, after=FALLBACK_AFTER + 2 * RECEIPTS_AFTER, unless="delivered"),
)
