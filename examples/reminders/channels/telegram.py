"""Telegram by a bot, with mail as the fallback. Adding the channel needed no other file."""

from reminders.channels import Way
from reminders.settings import DELAYS, FALLBACK_AFTER, account
from sereno import in_app
from sereno.channels.telegram import Telegram


class Chat(Telegram):
    delays = DELAYS


channel = Chat()
way = Way(
    channel,
    account("TELEGRAM", "bot_token", "url"),
    channel.then("email", after=FALLBACK_AFTER, unless="sent").then(in_app, after=FALLBACK_AFTER, unless="sent"),
)
