"""Message templates by event, channel and language: files of the project, and rows that operators change.

    templates/{event}/{channel}.{locale}.{part}.j2
    templates/{event}/{channel}.{part}.j2

A part is `title`, `body`, `html` or `options` (a JSON object). The channel `any` stands for all. For each part, the
first match is used: a row of the tenant, a row, a file; among these the exact locale, its language, no locale; among
these the channel, then `any`.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from traceback import walk_tb
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from sereno.database.json_values import stored
from sereno.errors import ConfigurationError, SerenoError
from sereno.notifications.event import Content, Recipient
from sereno.notifications.templates.rows import TemplatePlace

if TYPE_CHECKING:
    from jinja2 import Template

    from sereno.notifications.templates.sandbox import Sandbox

PARTS = ("title", "body", "html", "options")
# A message needs at least one of these parts.
WORDS = frozenset({"title", "body", "html"})
ANY = "any"
DEFAULT_DIRECTORY = "templates"
LARGEST_SOURCE = 64 * 1024
LONGEST_ERROR = 300
# Names that a template may use besides the fields of the payload.
NAMES = frozenset({"event", "recipient", "unsubscribe_url", "preferences_url"})
# After this many consecutive timeouts, a template is not rendered for some seconds: it would delay all others.
MOST_OVERRUNS, REST_SECONDS = 3, 60.0
# Most cached compiled templates, and cached results of `find`.
MOST_CACHED = 5000


class TemplateFailed(SerenoError):  # noqa: N818 - named for what happened
    """A template is invalid or does something forbidden; the message names the template, and the line if known."""


class StoredSource(NamedTuple):
    """The source of a template. `name`: its name in errors."""

    key: TemplatePlace
    name: str
    text: str
    is_file: bool


class TemplateSet:
    """The templates of one application. Files are listed once; the caller reads the rows and passes them in."""

    def __init__(self, directory: Path | None) -> None:
        # The path of each file, or its source if another process has read it.
        self._files: dict[TemplatePlace, Path | StoredSource] = {}
        self._rows: dict[TemplatePlace, str] = {}
        # Files in the directory that are not templates: a warning names them.
        self.unknown_files: list[str] = []
        self._found: dict[tuple[str, str, str | None, str | None], dict[str, StoredSource]] = {}
        # By source: number of consecutive timeouts, and the time of the last.
        self._overruns: dict[str, tuple[int, float]] = {}
        if directory is not None:
            self._scan(directory)
        self._events = {key.event for key in self._files}

    def _scan(self, directory: Path) -> None:
        for path in sorted(directory.glob("*/*")):
            words = path.name.split(".")
            if path.suffix != ".j2" or len(words) not in (3, 4) or words[-2] not in PARTS:
                self.unknown_files.append(f"{path.parent.name}/{path.name}")
                continue
            locale = normal(words[1]) if len(words) == 4 else ""  # noqa: PLR2004 - channel, locale, part, j2
            self._files[TemplatePlace(path.parent.name, words[0], locale, "", words[-2])] = path

    def use_rows(self, rows: Mapping[TemplatePlace, str]) -> None:
        """Replace the rows."""
        self._rows = {place._replace(locale=normal(place.locale)): text for place, text in rows.items()}
        self._found.clear()
        self._overruns.clear()
        self._events = {key.event for key in (*self._files, *self._rows)}

    def use_sources(self, sources: Iterable[StoredSource]) -> None:
        """Replace all templates with sources that another process has read."""
        self._files = {source.key: source for source in sources if source.is_file}
        self.use_rows({source.key: source.text for source in sources if not source.is_file})

    def has(self, event: str) -> bool:
        """Return whether the event has any template."""
        return event in self._events

    def events(self) -> list[str]:
        """Return the names of all events that have a template."""
        return sorted(self._events)

    def __len__(self) -> int:
        """Return the number of templates, files and rows."""
        return len(self._files) + len(self._rows)

    def sources(self, event: str | None = None) -> list[StoredSource]:
        """Return all sources, or those of an event."""
        keys = sorted(key for key in {*self._rows, *self._files} if event in (None, key.event))
        return [
            self._read(key, is_file=is_file)
            for key in keys
            for is_file in (False, True)
            if key in (self._files if is_file else self._rows)
        ]

    def find(self, event: str, channel: str, locale: str | None, tenant: str | None) -> dict[str, StoredSource]:
        """Return the sources that apply to a recipient, by part."""
        wanted = (event, channel, locale, tenant)
        found = self._found.get(wanted)
        if found is None:
            if len(self._found) >= MOST_CACHED:
                self._found.clear()
            found = self._found[wanted] = {
                part: source for part in PARTS if (source := self._first(*wanted, part)) is not None
            }
        return found

    def _first(
        self, event: str, channel: str, locale: str | None, tenant: str | None, part: str
    ) -> StoredSource | None:
        places = [*([(tenant, False)] if tenant else []), ("", False), ("", True)]
        for owner, is_file in places:
            known = self._files if is_file else self._rows
            for language in languages(locale):
                for by in (channel, ANY):
                    key = TemplatePlace(event, by, language, owner, part)
                    if key in known:
                        return self._read(key, is_file=is_file)
        return None

    def _read(self, key: TemplatePlace, *, is_file: bool) -> StoredSource:
        if not is_file:
            return StoredSource(key, f"row {spelled(key)}", self._rows[key], is_file)
        path = self._files[key]
        if isinstance(path, StoredSource):
            return path
        name = f"{key.event}/{path.name}"
        try:
            with path.open("rb") as file:
                # One more, so that a source that is too long is detected.
                return StoredSource(key, name, file.read(LARGEST_SOURCE + 1).decode(), is_file)
        except (OSError, UnicodeDecodeError) as error:
            raise TemplateFailed(f"{name}: it cannot be read: {type(error).__name__}") from None

    # Render

    def render(
        self,
        event: str,
        channel: str,
        locale: str | None,
        tenant: str | None,
        payload: Mapping[str, Any],
        recipient: Recipient,
    ) -> Content | None:
        """Render a message; None if there is no template."""
        found = self.find(event, channel, locale, tenant)
        if not WORDS & found.keys():
            return None
        context = {
            **payload,
            "event": event,
            "recipient": {"key": recipient.key, "locale": recipient.locale},
            "unsubscribe_url": recipient.unsubscribe_url or "",
            "preferences_url": recipient.preferences_url or "",
        }
        texts = {part: self._rendered(source, part, context, channel, locale, tenant) for part, source in found.items()}
        content = Content(
            # A single line: in an email it is a header.
            title=" ".join(texts.get("title", "").split()),
            body=texts.get("body", "").strip(),
            html=texts["html"].strip() if "html" in texts else None,
            options=_options(found["options"].name, texts["options"]) if "options" in texts else {},
        )
        stored(content, lambda why: TemplateFailed(f"{event}, {channel}: {why}"))
        return content

    def _rendered(
        self,
        source: StoredSource,
        part: str,
        context: Mapping[str, Any],
        channel: str,
        locale: str | None,
        tenant: str | None,
    ) -> str:
        from sereno.notifications.templates.sandbox_costs import BudgetExhausted, run  # noqa: PLC0415 - Jinja is slow to import

        def sibling(name: str) -> "Template":
            by, _, wanted = name.rpartition(".")
            other = self._first(source.key.event, by or channel, locale, tenant, wanted) if wanted in PARTS else None
            if other is None:
                raise TemplateFailed(f"{source.name}: the event has no template {name!r:.80} to include")
            return compiled(other.name, other.text, is_html=part == "html")

        count, since = self._overruns.get(source.text, (0, 0.0))
        if count >= MOST_OVERRUNS and time.monotonic() - since < REST_SECONDS:
            raise TemplateFailed(f"{source.name}: it took too long {count} times, and is disabled for a minute")
        try:
            text = run(compiled(source.name, source.text, is_html=part == "html"), context, sibling)
        except TemplateFailed:
            raise
        except BudgetExhausted as error:
            self._overruns[source.text] = (count + 1, time.monotonic())
            raise failure(source.name, error) from None
        except Exception as error:  # noqa: BLE001 - a template can raise anything
            raise failure(source.name, error) from None
        if count:
            self._overruns.pop(source.text, None)
        return text


def compiled(name: str, text: str, *, is_html: bool) -> "Template":
    """Return the compiled template; TemplateFailed if it is invalid."""
    if len(text) > LARGEST_SOURCE:
        raise TemplateFailed(f"{name}: it is longer than {LARGEST_SOURCE:,} characters")
    return _made(name, text, is_html=is_html)


@lru_cache(maxsize=MOST_CACHED)
def _made(name: str, text: str, *, is_html: bool) -> "Template":
    """Compile each source once."""
    try:
        return sandbox(is_html=is_html).made(name, text)
    except Exception as error:  # noqa: BLE001 - the source is untrusted
        raise failure(name, error) from None


def forget_compiled() -> None:
    """Free the memory of all compiled templates."""
    _made.cache_clear()


@lru_cache(maxsize=2)
def sandbox(*, is_html: bool) -> "Sandbox":
    """Return the sandbox for text, or the one for HTML, which escapes values."""
    try:
        from sereno.notifications.templates.sandbox import Sandbox  # noqa: PLC0415 - Jinja is slow to import
    except ModuleNotFoundError as error:
        if error.name != "jinja2":
            raise
        raise ConfigurationError("templates need Jinja: pip install 'sereno[channels]'") from None
    return Sandbox(is_html=is_html)


def failure(name: str, error: Exception) -> TemplateFailed:
    """Return the error with the name of the template and the line."""
    line = getattr(error, "lineno", None)
    for frame, number in walk_tb(error.__traceback__):
        if frame.f_code.co_filename == name:
            line = number
    where = f"{name}, line {line}" if line else name
    match error:
        case RecursionError():
            text = "it calls itself endlessly"
        case MemoryError():
            text = "it takes too much memory"
        case _:
            text = str(error) or type(error).__name__
    return TemplateFailed(f"{where}: {text}"[:LONGEST_ERROR])


def _options(name: str, text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise TemplateFailed(f"{name}: the options must be a JSON object: {error}"[:LONGEST_ERROR]) from None


# Names


def normal(locale: str) -> str:
    """Normalise a locale: pt_BR and pt-br are the same."""
    return locale.replace("_", "-").lower()


def languages(locale: str | None) -> Iterator[str]:
    """Yield the locales to try: pt-BR, pt, any."""
    words = normal(locale or "").split("-")
    for count in range(len(words), 0, -1):
        if words[0]:
            yield "-".join(words[:count])
    yield ""


def spelled(key: TemplatePlace) -> str:
    """Return the name that the file would have."""
    locale = f".{key.locale}" if key.locale else ""
    tenant = f" of {key.tenant}" if key.tenant else ""
    return f"{key.event}/{key.channel}{locale}.{key.part}{tenant}"


def directory_of(setting: str | None) -> Path | None:
    """Return the directory of the files: as set, or `templates` in the working directory if it exists."""
    directory = Path(setting or DEFAULT_DIRECTORY)
    if directory.is_dir():
        return directory
    if setting:
        raise ConfigurationError(f"templates: there is no directory {setting}")
    return None
