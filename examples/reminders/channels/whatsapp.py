"""WhatsApp by Meta's Cloud API, with SMS and the inbox as fallbacks.

Meta accepts plain text only for people who wrote to us within a day. For all others it requires a template that it has
approved, with two parameters in its text: `REMINDERS_WHATSAPP_TEMPLATE=due_reminder`.
"""

from reminders.channels import Way
from reminders.settings import DELAYS, FALLBACK_AFTER, account, setting
from sereno import Content, in_app
from sereno.channels.whatsapp import WhatsApp

TEMPLATE = setting("REMINDERS_WHATSAPP_TEMPLATE", "")
LANGUAGE = setting("REMINDERS_WHATSAPP_LANGUAGE", "en")


class Chat(WhatsApp):
    delays = DELAYS


def adapt(content: Content) -> Content:
    """Return the title and the text as the two parameters of the approved template."""
    if not TEMPLATE:
        return content
    parameters = [{"type": "text", "text": text} for text in (content.title, content.body)]
    components = [{"type": "body", "parameters": parameters}]
    template = {"name": TEMPLATE, "language": LANGUAGE, "components": components}
    return Content(content.title, content.body, options={"template": template})


channel = Chat()
way = Way(
    channel,
    account("WHATSAPP", "phone_number_id", "access_token", "app_secret", "url", "version"),
    channel.then("sms", after=FALLBACK_AFTER, unless="sent").then(in_app, after=FALLBACK_AFTER, unless="sent"),
    adapt,
)
