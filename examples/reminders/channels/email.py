"""Mail. Whoever it does not reach gets an SMS; if that fails too, the reminder waits in the application."""

from reminders.channels import Way
from reminders.settings import DELAYS, FALLBACK_AFTER, account, setting
from sereno import in_app
from sereno.channels.email import Email


class Mail(Email):
    delays = DELAYS


channel = Mail(sender="Reminders <reminders@example.org>")
way = Way(
    channel,
    account("SMTP", "host", "tls", "username", "password", "sender") | {"port": int(setting("SMTP_PORT", "587"))},
    # A mail server says no more than that it took the mail: `delivered` would never come.
    channel.then("sms", after=FALLBACK_AFTER, unless="sent").then(in_app, after=FALLBACK_AFTER, unless="sent"),
)
