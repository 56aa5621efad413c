"""Explains why a recipient was notified or not: the decisions per event and channel, as sentences for operators."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from sereno.channels.contract import IN_APP
from sereno.database.statement import Operation
from sereno.duration import duration_text
from sereno.jobs.limits.why import moment
from sereno.notifications import queries as notification_queries
from sereno.notifications.event import EventDefinition
from sereno.notifications.event_types import Resolve, kind_of
from sereno.notifications.jobs import QUEUE
from sereno.notifications.operations import masked, unknown_type
from sereno.notifications.recipients.message_kind import DigestWindow
from sereno.notifications.recipients.preference import Preference, PreferenceDecision, decide, resolve
from sereno.notifications.recipients.quiet_hours import quiet_until
from sereno.notifications.rows import AddressRow, ChannelPause, DeliveryDetailRow, EventRow, RecipientRow
from sereno.notifications.topics import queries as topic_queries
from sereno.text import check_text

# Most events that are explained, event types that are listed, and characters of a condition that are shown.
MOST_EVENTS = 5
MOST_TYPES = 50
LONGEST_CONDITION = 200


@dataclass(frozen=True, slots=True)
class EventKind:
    """The properties of an event type that decide about sending: from the code, or from its newest event."""

    name: str
    channels: Sequence[str]
    category: str | None = None
    critical: bool = False
    opt_in: bool = False
    digest: DigestWindow | None = None


def declared_kind(event: EventDefinition, resolve_channels: Resolve) -> EventKind:
    """Return an event type that the code declares, with its active channels."""
    return EventKind(
        event.name,
        resolve_channels(event.channels)[0],
        event.category,
        event.critical,
        event.opt_in,
        kind_of(event, resolve_channels).digest,
    )


@dataclass(frozen=True, slots=True)
class WhyRecipient:
    """Everything that currently decides about sending to one recipient."""

    row: RecipientRow
    addresses: list[AddressRow]
    preferences: list[Preference]
    pauses: list[ChannelPause]
    now: datetime

    def decision(self, kind: EventKind, channel: str, payload: Any) -> PreferenceDecision:
        choice = resolve(self.preferences, category=kind.category, event=kind.name, channel=channel)
        return decide(choice, payload=payload, critical=kind.critical, default_wanted=not kind.opt_in)

    def pause(self, channel: str, account: str) -> ChannelPause | None:
        holds = (pause for pause in self.pauses if pause.channel == channel and pause.account in ("", account))
        return next(holds, None)


def why_notification(
    recipient: str, kind: str, *, tenant: str | None = None, known: Mapping[str, EventKind] | None = None
) -> Operation[list[str]]:
    """Return the explanation. `known`: the declared event types; without it, the newest event is used."""
    for name, value in (("recipient", recipient), ("event", kind), ("tenant", tenant)):
        check_text(name, value)
    newest = yield from notification_queries.events_for(kind, tenant=tenant, recipient=None, most=1)
    declared = (known or {}).get(kind)
    if declared is None and not newest:
        return (yield from _no_such_type(kind, tenant, known))
    row = yield from notification_queries.recipient(recipient, tenant=tenant)
    if row is None:
        return _no_such_recipient(recipient, tenant)
    person = yield from _person(row)
    theirs = yield from notification_queries.events_for(kind, tenant=tenant, recipient=recipient, most=MOST_EVENTS)
    found = yield from notification_queries.deliveries_for([event.id for event in theirs], row.id)
    sentences = [
        sentence
        for event in theirs
        for sentence in _about(event, [each for each in found if each.event_id == event.id], person)
    ]
    if not theirs:
        sentences.append(_not_theirs(kind, recipient, newest))
    if known is not None and declared is None:
        sentences.append(f"This application no longer declares the event {kind}.")
    if not found:
        sentences += _outlook(declared or _kind(newest[0]), person)
    return sentences


def why_event(number: int, recipient: str, *, tenant: str | None = None) -> Operation[list[str]]:
    """Return what was decided about one event for one recipient; empty if one of them does not exist."""
    check_text("recipient", recipient)
    check_text("tenant", tenant)
    event = yield from notification_queries.event(number)
    row = yield from notification_queries.recipient(recipient, tenant=tenant)
    if event is None or row is None or event.tenant != row.tenant:
        return []
    person = yield from _person(row)
    found = yield from notification_queries.deliveries_for([number], row.id)
    if not found and event.named is not None:
        names = "1 recipient" if event.named == 1 else f"{event.named:,} recipients"
        return [f"Event {number} names {names}, and created no delivery for {recipient}."]
    topic = None if found else event.topic
    if topic is not None and not (yield from topic_queries.is_subscribed(row.id, topic, event.tenant)):
        return [f"Event {number} is for the topic {topic}, to which {recipient} is not subscribed."]
    return list(_about(event, found, person))


def is_unknown(sentences: Sequence[str]) -> bool:
    """Return whether `why_notification` found no such recipient, or no such event type."""
    return sentences[0].startswith(("There is no recipient ", "There is no event type "))


def _person(row: RecipientRow) -> Operation[WhyRecipient]:
    addresses = yield from notification_queries.addresses(row.id)
    preferences = yield from notification_queries.preferences(row.id, tenant=row.tenant)
    pauses = yield from notification_queries.pauses()
    now = yield from notification_queries.now()
    return WhyRecipient(row, addresses, [each.preference(row.key) for each in preferences], pauses, now)


def _no_such_type(kind: str, tenant: str | None, known: Mapping[str, EventKind] | None) -> Operation[list[str]]:
    seen = yield from notification_queries.types(MOST_TYPES)
    if kind in seen:
        where = f"in the tenant {tenant}" if tenant else "without a tenant (others: --tenant)"
        return [
            f"There was no recent event {kind} {where}.",
            "To see what would be decided, name the application with -a or SERENO_APP.",
        ]
    text = unknown_type(kind, {*seen, *(known or {})})
    return [f"{text[0].upper()}{text[1:]}{'' if text.endswith('…') else '.'}"]


def _no_such_recipient(key: str, tenant: str | None) -> list[str]:
    where = f" in the tenant {tenant}" if tenant else " without a tenant (others: --tenant)"
    return [
        f"There is no recipient {key}{where}, so nothing can be sent.",
        f"To create it: sereno recipient set {key} --channel CHANNEL=ADDRESS",
    ]


def _not_theirs(kind: str, key: str, newest: Sequence[EventRow]) -> str:
    if not newest:
        return f"There was no recent event {kind}."
    event = newest[0]
    if event.topic is not None:
        audience = f"is for the topic {event.topic}, to which {key} is not subscribed"
    else:
        audience = f"names {'1 other' if event.named == 1 else f'{event.named or 0:,} others'}"
    return (
        f"{key} is in the audience of no recent {kind}: the newest, event {event.id} at {moment(event.created_at)}, "
        f"{audience}."
    )


# What was decided


def _about(event: EventRow, deliveries: Sequence[DeliveryDetailRow], person: WhyRecipient) -> Iterator[str]:
    subject = f" ({event.subject})" if event.subject else ""
    title = f"Event {event.id}{subject}, {moment(event.created_at)}"
    if not deliveries:
        yield f"{title}: {_left_out(event, person)}."
    for delivery in deliveries:
        to = f" to {masked(delivery.address)}" if delivery.address else ""
        yield f"{title}, by {delivery.channel}{to}: {_fate(delivery, event, person)}."
    if event.note:
        yield f"Event {event.id}: {event.note}."


def _fate(delivery: DeliveryDetailRow, event: EventRow, person: WhyRecipient) -> str:
    match delivery.state:
        case "pending":
            return _waits(delivery, event, person)
        case "sending":
            return f"it is being sent by job {delivery.job_id} (sereno why {delivery.job_id})"
        case "sent":
            check = f"; the next receipt check is at {moment(delivery.receipt_at)}" if delivery.receipt_at else ""
            return f"the provider accepted it at {moment(delivery.sent_at)}; no receipt yet{check}"
        case "delivered" if delivery.channel == IN_APP:
            return f"it has been in the inbox since {moment(delivery.sent_at)}, unread"
        case "delivered":
            return f"delivered; it was sent at {moment(delivery.sent_at)}"
        case "read":
            return f"it was read, by {moment(delivery.changed_at)}"
        case "skipped":
            return f"nothing was sent: {delivery.reason}{_decided_by(delivery, event, person)}"
        case _:
            return _not_arrived(delivery)


def _not_arrived(delivery: DeliveryDetailRow) -> str:
    error = _error(delivery)
    words = {
        "bounced": f"it bounced at {moment(delivery.changed_at)}{error}",
        "failed": f"it failed permanently: {delivery.reason or 'refused'}{error}",
        "invalid": f"the provider does not know the address{error}; the address was deactivated",
        "expired": f"it expired at {moment(delivery.expires_at)} before it was sent",
        "dead": f"it is dead: {delivery.reason}{error}",
        "unknown": f"it may have been sent, the outcome is unknown{error}",
    }
    return f"{words.get(delivery.state, delivery.state)}; to send it again: sereno delivery requeue {delivery.id}"


def _waits(delivery: DeliveryDetailRow, event: EventRow, person: WhyRecipient) -> str:
    pause = person.pause(delivery.channel, delivery.account)
    if pause is not None:
        return f"it waits: {_paused(pause)}"
    wait = (delivery.due_at - person.now).total_seconds()
    tried = f", after {delivery.attempts} {'try' if delivery.attempts == 1 else 'tries'}{_error(delivery)}"
    because = {None: "", "tried again": tried}.get(delivery.reason, f" ({delivery.reason})")
    if wait > 0 and delivery.is_collected and delivery.reason is None:
        until = f"{moment(delivery.due_at)}, {duration_text(wait)} from now"
        return f"it is collected with others of its digest until {until}{_digest_by(delivery, event, person)}"
    if wait > 0:
        return f"it waits until {moment(delivery.due_at)}, {duration_text(wait)} from now{because}"
    queue = delivery.queue or QUEUE
    return f"it has been due since {moment(delivery.due_at)}{because}; a worker of the queue {queue!r} sends it"


def _digest_by(delivery: DeliveryDetailRow, event: EventRow, person: WhyRecipient) -> str:
    """Name the preference that decides for how long; it may have changed since."""
    choice = resolve(person.preferences, category=event.category, event=event.type, channel=delivery.channel)
    if event.critical or choice.digest is None:
        return ", as the event declares"
    time = duration_text(choice.digest) if choice.digest else "at once"
    return f"; {_preference_text(choice.digest_by)} says {time}"


def _decided_by(delivery: DeliveryDetailRow, event: EventRow, person: WhyRecipient) -> str:
    """Name the preference that decided; it may have changed since."""
    if delivery.reason not in ("preference off", "condition"):
        return ""
    decision = person.decision(_kind(event), delivery.channel, _payload(event))
    if decision.reason != delivery.reason:
        return ", which has changed since"
    return f", by {_preference_text(decision.by)}"


def _left_out(event: EventRow, person: WhyRecipient) -> str:
    """Explain an event without a delivery: a broadcast that skipped the recipient, or a fan-out not finished yet."""
    if event.matched_at is None:
        if event.due_at > person.now:
            return f"it is scheduled for {moment(event.due_at)}"
        if event.walked < person.row.id:
            return "its deliveries are still being created, and this recipient is not processed yet"
    if event.cancelled_at is not None and event.walked < person.row.id:
        return f"it was cancelled at {moment(event.cancelled_at)}, before this recipient was processed"
    if event.matched_at is not None and person.row.created_at > event.matched_at:
        return f"{person.row.key} did not exist yet; created at {moment(person.row.created_at)}"
    kind, payload = _kind(event), _payload(event)
    against = []
    for channel in event.channels:
        decision = person.decision(kind, channel, payload)
        if decision.reason is not None:
            against.append(f"by {channel}: {decision.reason}, by {_preference_text(decision.by)}")
    reasons = "; ".join(against) or "their preferences have changed since"
    audience = "all who wanted it" if event.topic is None else f"the subscribers of {event.topic} who wanted it"
    return f"it was sent to {audience}, without {person.row.key} ({reasons})"


# What would be decided


def _outlook(kind: EventKind, person: WhyRecipient) -> Iterator[str]:
    for channel in kind.channels:
        yield f"If it happened now, by {channel}: {_transition(kind, channel, person)}."


def _transition(kind: EventKind, channel: str, person: WhyRecipient) -> str:
    choice = resolve(person.preferences, category=kind.category, event=kind.name, channel=channel)
    # A condition cannot be evaluated: the payload is not known yet.
    decision = decide(
        msgspec.structs.replace(choice, condition=None),
        payload=None,
        critical=kind.critical,
        default_wanted=not kind.opt_in,
    )
    if decision.reason is not None:
        return f"not sent, {decision.reason}, by {_preference_text(decision.by)}"
    only = ""
    if choice.condition and not kind.critical:
        only = f"; only if {_short(choice.condition)} holds, by {_preference_text(choice.condition_by)}"
    if (missing := _unreachable(channel, person)) is not None:
        return f"not sent, {missing}"
    pause = person.pause(channel, person.row.tenant or "")
    if pause is not None:
        return f"it would wait, {_paused(pause)}{only}"
    zone = person.row.zone or "UTC"
    until = quiet_until(decision.quiet, zone, person.now) if decision.quiet else None
    if until is not None:
        return f"it would wait for quiet hours to end at {moment(until)}, by {_preference_text(choice.quiet_by)}{only}"
    collected = kind.digest.seconds(choice, critical=kind.critical) if kind.digest else 0.0
    if collected:
        is_chosen = choice.digest_by is not None and not kind.critical
        digest_by = f"by {_preference_text(choice.digest_by)}" if is_chosen else "as the event declares"
        return f"it would be collected with others of its digest for {duration_text(collected)}, {digest_by}{only}"
    by = "it is critical" if kind.critical else f"by {_preference_text(choice.wanted_by)}" if choice.wanted_by else ""
    return f"it would be sent immediately{f', {by}' if by else ''}{only}"


def _unreachable(channel: str, person: WhyRecipient) -> str | None:
    ways = [address for address in person.addresses if address.channel == channel]
    if channel == IN_APP or any(address.state == "active" for address in ways):
        return None
    if not ways:
        return f"no active address: the recipient has no address for {channel}"
    last = ways[-1]
    reason = f": {last.reason}" if last.reason else ""
    return f"no active address: {masked(last.address)} is {last.state}{reason}"


def _paused(pause: ChannelPause) -> str:
    account = f" for the account {pause.account}" if pause.account else ""
    return (
        f"the channel {pause.channel} has been paused{account} since {moment(pause.since)} ({pause.reason}); "
        f"to resume it: sereno channel resume {pause.channel}"
    )


def _preference_text(row: Preference | None) -> str:
    """Describe a row of the preferences."""
    if row is None:
        return "the event itself, which is opt-in"
    default = f"the default of the tenant {row.tenant}" if row.tenant else "the general default"
    whose = f"the preference of {row.recipient}" if row.recipient else default
    of = [
        f"{word} {value}"
        for word, value in (("event", row.event), ("category", row.category), ("channel", row.channel))
        if value
    ]
    return f"{whose} for {', '.join(of) if of else 'everything'}"


def _kind(event: EventRow) -> EventKind:
    return EventKind(event.type, event.channels, event.category, event.critical, event.opt_in)


def _payload(event: EventRow) -> Any:
    return json.loads(bytes(event.payload))


def _short(condition: Mapping[str, Any]) -> str:
    text = json.dumps(condition, ensure_ascii=False)
    return text if len(text) <= LONGEST_CONDITION else f"{text[:LONGEST_CONDITION]}…"


def _error(delivery: DeliveryDetailRow) -> str:
    text = ": ".join(" ".join(part.split()) for part in (delivery.error_code, delivery.error_message) if part)
    return f" ({text})" if text else ""
