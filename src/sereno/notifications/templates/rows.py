"""Row types of templates."""

from datetime import datetime
from typing import NamedTuple

import msgspec


class TemplatePlace(NamedTuple):
    """The place of a template. Empty: any locale, any tenant."""

    event: str
    channel: str
    locale: str
    tenant: str
    part: str


class TemplateRow(msgspec.Struct, kw_only=True):
    """One part of a template, with the last change of its row; a file has none."""

    event: str
    channel: str
    locale: str
    tenant: str
    part: str
    length: int
    changed_at: datetime | None = None
    changed_by: str | None = None

    @property
    def place(self) -> TemplatePlace:
        return TemplatePlace(self.event, self.channel, self.locale, self.tenant, self.part)


class TemplateLine(TemplateRow, kw_only=True):
    """One part of a template. `origin`: "row", or the name of its file. Empty `locale` and `tenant` mean any."""

    origin: str
