"""Links to the preference centre: of messages, and those that the application asks for."""

import math
import time

from sereno.access.signed_token import LONGEST_TOKEN
from sereno.database.database import Database
from sereno.duration import Duration, seconds
from sereno.errors import ConfigurationError, InvalidArguments
from sereno.notifications.recipients.preference_token import PreferenceOwner, make_token
from sereno.text import check_text

PATH = "/preference-centre/"
# Longest lifetime of a token in seconds. Access for longer should use the application's own login.
LONGEST_LIFE = 366 * 86400
# Seconds for which the link of a message works. People open old mail; the unsubscribe link works without a limit.
LIFE_IN_MESSAGES = 60 * 86400
_DAY = 86400


class PreferenceLinks:
    """Creates the links if the settings `public_url` (base of the link) and `secret` (signature) are set."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def of_message(self, tenant: str | None, recipient: str) -> str | None:
        """Return the link for a message; None without the two settings, or for a key that does not fit a token."""
        settings = self._database.settings
        if settings.public_url is None or settings.secret is None:
            return None
        # To the end of a day: all attempts of a message have the same text, which providers compare by their key.
        until = (int(time.time() + LIFE_IN_MESSAGES) // _DAY + 1) * _DAY
        token = make_token(settings.secret, PreferenceOwner(tenant, recipient, until))
        return f"{settings.public_url}{PATH}{token}" if len(token) <= LONGEST_TOKEN else None

    def token(self, recipient: str, tenant: str | None, expires_in: Duration) -> str:
        """Return a token; raise an error that says which setting is missing."""
        check_text("key", recipient)
        check_text("tenant", tenant)
        secret, lasts = self._database.settings.secret, seconds(expires_in)
        if secret is None:
            raise ConfigurationError("preference tokens are signed: set SERENO_SECRET")
        if not 0 < lasts <= LONGEST_LIFE:
            raise InvalidArguments(f"expires_in={expires_in!r:.60}: it must be positive and at most one year")
        token = make_token(secret, PreferenceOwner(tenant, recipient, math.ceil(time.time() + lasts), may_add=True))
        if len(token) > LONGEST_TOKEN:
            raise InvalidArguments(f"tenant and key are too long for a token of {LONGEST_TOKEN:,} characters")
        return token

    def url(self, recipient: str, tenant: str | None, expires_in: Duration) -> str:
        """Return a link; raise an error that says which setting is missing."""
        base = self._database.settings.public_url
        if base is None:
            raise ConfigurationError("the link needs the public address of the server: set SERENO_PUBLIC_URL")
        return f"{base}{PATH}{self.token(recipient, tenant, expires_in)}"
