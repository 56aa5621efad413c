"""Sends one message about an alert through a channel, as a job, so that it is retried and visible."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from sereno.channels.contract import Channel, Exchange, Message
from sereno.channels.discord import Discord
from sereno.channels.outcome import Delivered, Outcome, Retryable, Sent, Unknown
from sereno.channels.slack import Slack
from sereno.channels.teams import Teams
from sereno.channels.webhook import Webhook
from sereno.error_text import one_line
from sereno.jobs.attempt import Dead, Retry
from sereno.monitoring.alerts.rows import SentAlert
from sereno.monitoring.alerts.rule import AlertTarget

# Channels that need no account, only an address.
BUILT_IN: dict[str, Callable[[], Channel]] = {
    "discord": Discord,
    "slack": Slack,
    "teams": Teams,
    "webhook": Webhook,
}
EVENT = "sereno.alert"
HEADINGS = {"opened": "", "again": "Still: ", "over": "Over: ", "test": ""}
# Mentions that ping a whole chat channel; a zero-width space after the @ disables them.
_CALLS = ("everyone", "here", "channel")

FindExchange = Callable[[str, str], Awaitable[Exchange | None]]
# Returns the target and the alert of a message.
FindMessage = Callable[[str, int, int | None], Awaitable[tuple[AlertTarget | None, SentAlert | None]]]


def channel_of(known: Mapping[str, Channel], name: str) -> Channel | None:
    """Return a channel of the application, or one that needs only an address."""
    found = known.get(name)
    if found is None and name in BUILT_IN:
        found = BUILT_IN[name]()
    return found


class AlertSender:
    """Sends messages; the addresses are stored with the rule."""

    def __init__(self, find: FindMessage, channels: Mapping[str, Channel], exchange: FindExchange) -> None:
        self._find = find
        self._channels = channels
        self._exchange = exchange

    async def send(self, job: int, rule: str, target: int, what: str, alert: int | None) -> None:
        """Send one message; nothing if the rule or the alert was deleted, or if the scheduler has sent it."""
        where, about = await self._find(rule, target, alert)
        if where is None or (alert is not None and about is None) or (about is not None and job in about.sent):
            return
        channel = channel_of(self._channels, where.channel)
        if channel is None:
            raise Dead(f"unknown channel {where.channel}: add it with app.channels.add(…)")
        exchange = await self._exchange(where.channel, "")
        made = _message(job, rule, where, what, about)
        (outcome,) = await channel.send([made], exchange or Exchange())
        _settle(outcome, channel)


def _settle(outcome: Outcome, channel: Channel) -> None:
    """Turn the outcome of a delivery into the outcome of the job."""
    if isinstance(outcome, Sent | Delivered):
        return
    reason = f"{one_line(outcome.code)}: {one_line(outcome.message)}"
    if isinstance(outcome, Retryable):
        raise Retry(reason, after=outcome.after)
    if isinstance(outcome, Unknown) and channel.on_unknown == "retry":
        raise Retry(reason)
    raise Dead(reason)


def _message(job: int, rule: str, where: AlertTarget, what: str, about: SentAlert | None) -> Message:
    title, body, data = _test(rule) if about is None else _words(rule, what, about)
    return Message(
        delivery=job,
        key=f"sereno-alert-{job}",
        address=where.address,
        keys=where.keys,
        title=title,
        body=body,
        data=data,
        event=EVENT,
        recipient=rule,
    )


def _test(rule: str) -> tuple[str, str, dict[str, Any]]:
    return (
        "This is a test",
        f"Messages of the alert rule {rule} arrive here.",
        {"rule": rule, "what": "test"},
    )


def _words(rule: str, what: str, about: SentAlert) -> tuple[str, str, dict[str, Any]]:
    lines = [f"Since {about.opened_at:%Y-%m-%d %H:%M} UTC."]
    if about.resolved_at is not None and what == "over":
        lines = [f"From {about.opened_at:%Y-%m-%d %H:%M} to {about.resolved_at:%Y-%m-%d %H:%M} UTC."]
    elif about.remedy:
        lines.append(f"Remedy: {about.remedy}")
    lines.append(f"Rule {rule}, alert {about.id}.")
    data = {
        "rule": rule,
        "what": what,
        "alert": about.id,
        "kind": about.kind,
        "subject": about.subject,
        "level": about.level,
        "words": about.words,
        "details": about.details,
        "opened_at": about.opened_at.isoformat(),
        "resolved_at": None if about.resolved_at is None else about.resolved_at.isoformat(),
    }
    return _without_mentions(HEADINGS.get(what, "") + about.words), _without_mentions("\n".join(lines)), data


def _without_mentions(text: str) -> str:
    """Return the text with @mentions disabled, so that a user-chosen name cannot ping anyone."""
    for word in _CALLS:
        text = text.replace(f"@{word}", f"@\u200b{word}")
    return text
