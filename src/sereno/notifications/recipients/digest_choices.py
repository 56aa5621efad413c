"""The choices of a recipient about digests: for how long the messages of a category are collected.

A choice is about a category, or about an event type without one, on all channels. Narrower rows of the recipient are
replaced by it.
"""

from collections.abc import Iterable, Sequence
from typing import Annotated

import msgspec

from sereno.errors import InvalidArguments
from sereno.notifications.recipients.message_kind import MessageKind
from sereno.notifications.recipients.preference import LONGEST_DIGEST, Preference, resolve

Name = Annotated[str, msgspec.Meta(max_length=500)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=LONGEST_DIGEST)]


class DigestChoice(msgspec.Struct, frozen=True, kw_only=True):
    """For how long messages are collected, in seconds; 0: each is sent at once.

    `chosen`: None if the recipient has not chosen, or `is_mixed`: differently for some of them. `usual`: the times that
    apply without a choice, in ascending order.
    """

    chosen: float | None
    is_mixed: bool
    usual: list[float]


class DigestChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A choice that the recipient has changed, named as in its line. `digest`: None for the usual time."""

    digest: Seconds | None
    category: Name | None = None
    event: Name | None = None


def digest_choice(
    preferences: Sequence[Preference], kinds: Iterable[MessageKind], channels: Sequence[str]
) -> DigestChoice | None:
    """Return the choice for event types of one category, or for one event type; None if none of them has a digest."""
    places = [
        (kind, channel)
        for kind in kinds
        if kind.digest is not None and not kind.critical
        for channel in channels
        if channel in kind.channels
    ]
    if not places:
        return None
    inside = [row for row in preferences if any(_is_narrow(row, kind) for kind, _ in places)]
    usual = [row for row in preferences if row not in inside]
    found = set()
    for kind, channel in places:
        row = resolve(inside, category=kind.category, event=kind.name, channel=channel)
        found.add(row.digest)
    return DigestChoice(
        chosen=found.pop() if len(found) == 1 else None,
        is_mixed=len(found) > 1,
        usual=sorted({time for kind, _ in places for time in collected_for(usual, kind, channels)}),
    )


def collected_for(preferences: Sequence[Preference], kind: MessageKind, channels: Sequence[str]) -> set[float]:
    """Return for how many seconds messages are collected on these channels; empty for an event without a digest."""
    if kind.digest is None:
        return set()
    choices = [
        resolve(preferences, category=kind.category, event=kind.name, channel=channel)
        for channel in channels
        if channel in kind.channels
    ]
    return {kind.digest.seconds(choice, critical=kind.critical) for choice in choices}


def digest_rows(
    recipient: str,
    preferences: Sequence[Preference],
    kinds: Sequence[MessageKind],
    channels: Sequence[str],
    changes: Iterable[DigestChange],
) -> list[Preference]:
    """Return the recipient's rows to write, each with `digest` alone; None clears it.

    Raises InvalidArguments for a choice that is not shown.
    """
    writes: dict[tuple[str | None, str | None, str | None], Preference] = {}
    for change in changes:
        meant = [kind for kind in kinds if _is_meant(kind, change)]
        if digest_choice(preferences, meant, channels) is None:
            named = change.event or change.category or "everything"
            raise InvalidArguments(f"there is no digest of {named:.200}: it may have changed meanwhile")
        for row in preferences:
            if any(_is_narrow(row, kind) for kind in meant):
                writes[row.category, row.event, row.channel] = Preference(
                    recipient=recipient, category=row.category, event=row.event, channel=row.channel
                )
        writes[change.category, change.event, None] = Preference(
            recipient=recipient, category=change.category, event=change.event, digest=change.digest
        )
    return list(writes.values())


def _is_meant(kind: MessageKind, change: DigestChange) -> bool:
    if change.event is not None:
        return change.category is None and kind.category is None and kind.name == change.event
    return change.category is not None and kind.category == change.category


def _is_narrow(row: Preference, kind: MessageKind) -> bool:
    """Return whether it is the recipient's row about this event type or its category, and sets a digest."""
    return (
        row.recipient is not None
        and row.digest is not None
        and row.is_about(category=kind.category, event=kind.name, channel=row.channel)
        and (row.category, row.event) != (None, None)
    )
