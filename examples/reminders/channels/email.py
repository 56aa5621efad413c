"""Mail. The fallback is SMS, then the inbox."""

from reminders.channels import Way
from reminders.settings import DELAYS, FALLBACK_AFTER, account, setting
from sereno import in_app
from sereno.channels.email import Email


class Mail(Email):
    delays = DELAYS


channel = Mail(sender="Reminders <reminders@example.org>")
server = account("SMTP", "host", "tls", "username", "password", "sender")
way = Way(
    channel,
    server | {"port": int(setting("REMINDERS_SMTP_PORT", "587"))},
    # A mail server reports only that it accepted the mail: `delivered` would never come.
    channel.then("sms", after=FALLBACK_AFTER, unless="sent").then(in_app, after=FALLBACK_AFTER, unless="sent"),
)
