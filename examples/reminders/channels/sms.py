"""SMS by Twilio. A message with an unknown outcome is not sent again automatically: a second one costs money."""

from reminders.channels import Way
from reminders.settings import DELAYS, FALLBACK_AFTER, account
from sereno import in_app
from sereno.channels.twilio import Twilio


class Sms(Twilio):
    delays = DELAYS


channel = Sms()
way = Way(
    channel,
    account("TWILIO", "account_sid", "auth_token", "from_number", "messaging_service_sid", "status_callback", "url"),
    channel.then(in_app, after=FALLBACK_AFTER, unless="sent"),
)
