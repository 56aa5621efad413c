"""Time zones as segments of constant offset, so that schedules need only arithmetic between two clock changes.

The data is from the pinned tzdata package, never from the system: two schedulers with the same pin agree on every
instant. Instants are whole microseconds since 1970, UTC; offsets are microseconds too.
"""

import difflib
import struct
from bisect import bisect_right
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.resources import files
from io import BytesIO
from itertools import pairwise
from typing import NamedTuple
from zoneinfo import ZoneInfo

import tzdata  # type: ignore[import-untyped]  # it ships no types

from sereno.errors import InvalidSchedule

VERSION: str = tzdata.IANA_VERSION

SECOND = 1_000_000
DAY = 86_400 * SECOND
# Earlier and later than any instant, with a margin to the limits of a 64-bit integer.
BEGINNING = -(2**62)
FOREVER = 2**62

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
# In datetime's first and last years an offset would overflow.
_FIRST_YEAR, _LAST_YEAR = 2, 9998
# Sampling interval. A yearly rule has two clock changes, months apart, so that weekly samples miss none.
_SAMPLE = 7 * DAY
_YEAR = 366 * DAY
_LONGEST_NAME = 100


class ZoneSegment(NamedTuple):
    """A span from start (inclusive) to end (exclusive) in which the wall clock is UTC plus offset."""

    start: int
    end: int
    offset: int
    offset_before: int
    offset_after: int


class Zone:
    """One zone of tzdata."""

    def __init__(self, name: str, data: bytes) -> None:
        self.name = name
        self.info = ZoneInfo.from_file(BytesIO(data), key=name)
        # By definition these never change between versions of the data.
        self.is_fixed = name == "UTC" or name.startswith("Etc/")
        listed, repeats = _read(data)
        changes = [at for at in listed if self._offset(at - 1) != self._offset(at)]
        if repeats:
            # The last listed segment ends with the first change by the yearly rule.
            last = max(listed, default=_new_year(1900))
            changes += self._changes(last, last + 2 * _YEAR)
        self._segments = self._between(changes, _new_year(_FIRST_YEAR))
        self._starts = [segment.start for segment in self._segments]
        # From here on, a zone with such a rule is computed year by year.
        self._listed_until = self._starts[-1] if repeats else FOREVER
        self._years: dict[int, list[ZoneSegment]] = {}
        self._latest = ZoneSegment(0, 0, 0, 0, 0)

    def __repr__(self) -> str:
        return f"Zone({self.name})"

    def segment(self, at: int) -> ZoneSegment:
        """Return the segment that contains this instant."""
        if at < self._listed_until:
            return self._segments[bisect_right(self._starts, at) - 1]
        # Most calls are for the same half year as the previous one.
        latest = self._latest
        if not latest.start <= at < latest.end:
            self._latest = latest = self._by_rule(at)
        return latest

    def _by_rule(self, at: int) -> ZoneSegment:
        year = min(moment(at).year, _LAST_YEAR)
        segments = self._years.get(year)
        if segments is None:
            segments = self._years[year] = self._around(year)
        return next(segment for segment in segments if at < segment.end)

    def _around(self, year: int) -> list[ZoneSegment]:
        """Return the segments of a year by the yearly rule; their ends may be in a neighbouring year."""
        first = max(_new_year(year - 1), self._listed_until - SECOND)
        changes = self._changes(first, _new_year(min(year + 1, _LAST_YEAR) + 1))
        return [segment for segment in self._between(changes, first) if segment.end > _new_year(year)]

    def _changes(self, first: int, last: int) -> list[int]:
        """Return the changes by the yearly rule between two instants."""
        samples = [(at, self._offset(at)) for at in range(first, last + _SAMPLE, _SAMPLE)]
        return [self._change(*one, another[0]) for one, another in pairwise(samples) if one[1] != another[1]]

    def _change(self, earlier: int, offset: int, later: int) -> int:
        """Return the first whole second with another offset than the earlier instant."""
        low, high = earlier // SECOND, later // SECOND
        while high - low > 1:
            middle = (low + high) // 2
            if self._offset(middle * SECOND) == offset:
                low = middle
            else:
                high = middle
        return high * SECOND

    def _between(self, changes: list[int], first: int) -> list[ZoneSegment]:
        """Return segments for all of time, split at the changes; `first` is an instant before them."""
        cuts = [BEGINNING, *changes, FOREVER]
        offsets = [self._offset(at) for at in (first, *changes)]
        around = [offsets[0], *offsets, offsets[-1]]
        return [ZoneSegment(cuts[i], cuts[i + 1], offsets[i], around[i], around[i + 2]) for i in range(len(offsets))]

    def _offset(self, at: int) -> int:
        offset = self.info.fromutc(moment(at).replace(tzinfo=self.info)).utcoffset()
        assert offset is not None
        return offset // _MICROSECOND


def zone(name: str) -> Zone:
    """Return the zone of this name, or raise InvalidSchedule with similar names."""
    # Only listed names are used as paths, which prevents path traversal.
    if not isinstance(name, str) or name not in names():
        raise InvalidSchedule(_unknown(name))
    return _load(name)


@cache
def _load(name: str) -> Zone:
    return Zone(name, files("tzdata").joinpath("zoneinfo", *name.split("/")).read_bytes())


@cache
def names() -> frozenset[str]:
    """Return the names of all zones in this version of the data."""
    return frozenset(files("tzdata").joinpath("zones").read_text(encoding="ascii").split())


def moment(at: int) -> datetime:
    """Return an instant as a datetime in UTC."""
    return _EPOCH + timedelta(microseconds=at)


def instant(at: datetime) -> int:
    """Return an aware datetime as an instant."""
    return (at - _EPOCH) // _MICROSECOND


def _new_year(year: int) -> int:
    return instant(datetime(year, 1, 1, tzinfo=UTC))


def _read(data: bytes) -> tuple[list[int], bool]:
    """Read a compiled zone file; return the instants of its changes, and whether a rule for all later years follows.

    The file has two parts: one with 32-bit times, which is skipped, and one with 64-bit times. Each begins with 44
    bytes that end in six counts. The last line is the rule; one with daylight saving time has commas.
    """
    utc, standard, leap, times, types, letters = struct.unpack_from(">6l", data, 20)
    second = 44 + times * 5 + types * 6 + letters + leap * 8 + standard + utc
    (count,) = struct.unpack_from(">l", data, second + 32)
    listed = struct.unpack_from(f">{count}q", data, second + 44)
    # Some files begin with a placeholder change billions of years ago.
    earliest = _new_year(_FIRST_YEAR)
    return [at * SECOND for at in listed if at * SECOND > earliest], b"," in data.rsplit(b"\n", 2)[1]


def _unknown(name: object) -> str:
    if not isinstance(name, str):
        return f"tz is the name of a time zone such as Europe/Riga, not {type(name).__name__}"
    if len(name) > _LONGEST_NAME:
        return f"tz is the name of a time zone such as Europe/Riga, not a text of {len(name)} characters"
    near = _similar(name)
    hint = f"did you mean {' or '.join(near)}?" if near else "use a name of the IANA database, such as Europe/Riga"
    return f"there is no time zone {name!a} in tzdata {VERSION}: {hint}"


def _similar(name: str) -> list[str]:
    """Return similar names, compared whole or by their city."""
    known = {full.rpartition("/")[2].casefold(): full for full in sorted(names())}
    known |= {full.casefold(): full for full in names()}
    wanted = name.strip().replace(" ", "_").casefold()
    matches = [wanted] if wanted in known else difflib.get_close_matches(wanted, known, n=3, cutoff=0.7)
    return list(dict.fromkeys(known[match] for match in matches))
