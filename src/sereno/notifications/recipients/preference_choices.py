"""The choices of a recipient: what they get on each channel, and the rows that a changed choice needs.

A choice is about everything on a channel, a category, or one event type. It is shown as the rows decide it, with the
precedence of `preference.resolve`. A change is written as rows of the same scope; narrower rows of the recipient that
would still decide otherwise are cleared, so that a category that is turned off sends nothing more.
"""

from collections.abc import Iterable, Sequence

import msgspec

from sereno.errors import InvalidArguments
from sereno.notifications.recipients.digest_choices import DigestChoice, Name, collected_for, digest_choice
from sereno.notifications.recipients.message_kind import MessageKind
from sereno.notifications.recipients.preference import Preference, resolve

# Most event types that are shown.
MOST_KINDS = 100

# Category, event and channel.
_Scope = tuple[str | None, str | None, str | None]


class ChannelChoice(msgspec.Struct, frozen=True, kw_only=True):
    """Whether messages are wanted on a channel.

    `is_fixed`: critical, sent whatever the preferences are. `is_mixed`: of a category, some of its event types are not
    wanted. `is_limited`: sent only if a condition on the content holds.
    """

    channel: str
    wanted: bool
    is_fixed: bool = False
    is_mixed: bool = False
    is_limited: bool = False


class ChoiceLine(msgspec.Struct, frozen=True, kw_only=True):
    """An event type, a whole category (no event), or everything (neither); and the channels it can be sent on.

    `digest`: seconds for which messages of the event type are collected; 0: each is sent at once; None without a
    digest, and where channels differ. `digest_choice`: of a category, or of an event type without one.
    """

    category: str | None = None
    event: str | None = None
    digest: float | None = None
    digest_choice: DigestChoice | None = None
    channels: list[ChannelChoice]


class ChoiceChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A choice that the recipient has changed, named as in its line."""

    channel: Name
    wanted: bool
    category: Name | None = None
    event: Name | None = None


def lines(preferences: Sequence[Preference], kinds: Iterable[MessageKind], channels: Sequence[str]) -> list[ChoiceLine]:
    """Return everything, then each category with its event types, then event types without a category.

    `preferences`: of one recipient, and the defaults of its tenant. `channels`: those that reach the recipient.
    """
    chosen = sorted(kinds, key=lambda kind: (kind.category is None, kind.category or "", kind.name))[:MOST_KINDS]
    found = [ChoiceLine(channels=_everything(preferences, chosen, channels))]
    category: str | None = None
    for kind in chosen:
        if kind.category is not None and kind.category != category:
            category = kind.category
            inside = [each for each in chosen if each.category == category]
            cells = _of_category(preferences, inside, channels)
            choice = digest_choice(preferences, inside, channels)
            found.append(ChoiceLine(category=category, digest_choice=choice, channels=cells))
        cells = [_of_event(preferences, kind, channel) for channel in channels if channel in kind.channels]
        times = collected_for(preferences, kind, channels)
        found.append(
            ChoiceLine(
                category=kind.category,
                event=kind.name,
                digest=times.pop() if len(times) == 1 else None,
                digest_choice=digest_choice(preferences, [kind], channels) if kind.category is None else None,
                channels=cells,
            )
        )
    return [line for line in found if line.channels]


def rows_for(
    recipient: str,
    preferences: Sequence[Preference],
    kinds: Sequence[MessageKind],
    channels: Sequence[str],
    changes: Iterable[ChoiceChange],
) -> list[Preference]:
    """Return the recipient's rows to write, each with `wanted` alone; None clears it. In the order of locks.

    Raises InvalidArguments for a choice that is not among the lines, or is fixed.
    """
    known = {
        (line.category, line.event, cell.channel): cell
        for line in lines(preferences, kinds, channels)
        for cell in line.channels
    }
    draft = _Draft(recipient, preferences, kinds)
    for change in changes:
        scope = (change.category, change.event, change.channel)
        cell = known.get(scope)
        if cell is None:
            named = " · ".join(name for name in scope if name)
            raise InvalidArguments(f"there is no choice {named:.200}: it may have changed meanwhile")
        if cell.is_fixed:
            raise InvalidArguments(f"{change.event or change.category} is always sent by {change.channel}")
        draft.apply(scope, wanted=change.wanted)
    return [draft.writes[scope] for scope in sorted(draft.writes, key=_lock_order)]


def _everything(
    preferences: Sequence[Preference], kinds: Sequence[MessageKind], channels: Sequence[str]
) -> list[ChannelChoice]:
    """Return the channels that the recipient can turn off as a whole.

    Turning one on again clears that row; it never writes `wanted=True`, which would opt in to every event type. Where
    a default has turned the channel off, there is nothing to clear.
    """
    used = {channel for kind in kinds if not kind.critical for channel in kind.channels}
    found = []
    for channel in channels:
        by = resolve(preferences, category=None, event=None, channel=channel).wanted_by
        if channel in used and (by is None or by.wanted or by.recipient is not None):
            found.append(ChannelChoice(channel=channel, wanted=by is None or bool(by.wanted)))
    return found


def _of_category(
    preferences: Sequence[Preference], kinds: Sequence[MessageKind], channels: Sequence[str]
) -> list[ChannelChoice]:
    found = []
    for channel in channels:
        cells = [_of_event(preferences, kind, channel) for kind in kinds if channel in kind.channels]
        free = [cell for cell in cells if not cell.is_fixed]
        if not cells:
            continue
        found.append(
            ChannelChoice(
                channel=channel,
                wanted=any(cell.wanted for cell in free or cells),
                is_fixed=not free,
                is_mixed=len({cell.wanted for cell in free}) > 1,
                is_limited=any(cell.is_limited for cell in free),
            )
        )
    return found


def _of_event(preferences: Sequence[Preference], kind: MessageKind, channel: str) -> ChannelChoice:
    if kind.critical:
        return ChannelChoice(channel=channel, wanted=True, is_fixed=True)
    choice = resolve(preferences, category=kind.category, event=kind.name, channel=channel)
    wanted = not kind.opt_in if choice.wanted is None else choice.wanted
    return ChannelChoice(channel=channel, wanted=wanted, is_limited=wanted and bool(choice.condition))


class _Draft:
    """The rows as they will be. `writes`: those that have to be written for that."""

    def __init__(self, recipient: str, preferences: Sequence[Preference], kinds: Sequence[MessageKind]) -> None:
        self.writes: dict[_Scope, Preference] = {}
        self._recipient = recipient
        self._rows = [row for row in preferences if row.wanted is not None]
        self._kinds = [kind for kind in kinds if not kind.critical]

    def apply(self, scope: _Scope, *, wanted: bool) -> None:
        category, event, channel = scope
        if event is not None:
            self._put((None, event, channel), wanted)
            self._align(category, event, channel, wanted=wanted)
        elif category is not None:
            self._put(scope, wanted)
            self._align_all(self._of(category), channel, wanted=wanted)
        elif wanted:
            self._clear_everything(channel)
        else:
            self._put(scope, wanted)
            # Rows of event types that no code declares any more count, too.
            rest = {(row.category, row.event) for row in self._rows if row.recipient is not None}
            kinds = {(kind.category, kind.name) for kind in self._kinds}
            self._align_all(kinds | (rest - {(None, None)}), channel, wanted=wanted)

    def _of(self, category: str) -> set[tuple[str | None, str | None]]:
        return {(kind.category, kind.name) for kind in self._kinds if kind.category == category}

    def _align_all(self, kinds: Iterable[tuple[str | None, str | None]], channel: str | None, *, wanted: bool) -> None:
        for category, event in sorted(kinds, key=lambda each: (each[0] or "", each[1] or "")):
            self._align(category, event, channel, wanted=wanted)

    def _align(self, category: str | None, event: str | None, channel: str | None, *, wanted: bool) -> None:
        """Clear rows of this channel that still decide otherwise, and outrank rows of all channels on this one."""
        while (by := self._decides(category, event, channel)) is not None and by.wanted != wanted:
            scope = (by.category, by.event, by.channel)
            if by.channel is None:
                self._put((by.category, by.event, channel), wanted)
            else:
                self._put(scope, None)

    def _decides(self, category: str | None, event: str | None, channel: str | None) -> Preference | None:
        by = resolve(self._rows, category=category, event=event, channel=channel).wanted_by
        return by if by is not None and by.recipient is not None else None

    def _clear_everything(self, channel: str | None) -> None:
        off = {
            row.channel
            for row in self._rows
            if row.recipient is not None and (row.category, row.event, row.wanted) == (None, None, False)
        }
        if channel in off:
            self._put((None, None, channel), None)
        if None in off:
            self._put((None, None, None), None)
            # The row was about all channels: the others stay off.
            others = {each for kind in self._kinds for each in kind.channels} - {channel} - off
            for other in others:
                self._put((None, None, other), False)

    def _put(self, scope: _Scope, wanted: bool | None) -> None:
        category, event, channel = scope
        row = Preference(recipient=self._recipient, category=category, event=event, channel=channel, wanted=wanted)
        self.writes[scope] = row
        self._rows = [
            each for each in self._rows if each.recipient is None or (each.category, each.event, each.channel) != scope
        ]
        if wanted is not None:
            self._rows.append(row)


def _lock_order(scope: _Scope) -> tuple[str, str, str]:
    return (scope[0] or "", scope[1] or "", scope[2] or "")
