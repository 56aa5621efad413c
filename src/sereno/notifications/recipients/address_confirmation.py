"""The message that asks for the confirmation of an address which a recipient has added in the preference centre.

It is an ordinary delivery of the event type EVENT to an address that is `unverified`: `events.sql` and
`deliveries/store.sql` name that type, because no other message is sent to such an address.
"""

from typing import Any

import msgspec

from sereno.duration import seconds
from sereno.errors import ConfigurationError
from sereno.notifications.deliveries.store import ClaimedDelivery
from sereno.notifications.event import Content, Recipient
from sereno.notifications.recipients.address_token import PATH, AddressClaim, make_token
from sereno.settings import Settings

EVENT = "sereno.confirm_address"
# The channel whose addresses recipients can add: a link proves that they read what is sent there.
CHANNEL = "email"
# How long the link works.
LIFE = "24h"
LIFE_SECONDS = int(seconds(LIFE))

# By language: the title and the text of the message.
TEXTS = {
    "en": (
        "Confirm your e-mail address",
        (
            "This address was entered to receive notifications. If you entered it, open this link within 24 hours, and "
            "confirm it there:\n\n%s\n\nIf you did not, do nothing: no notifications will be sent to this address.\n"
        ),
    ),
    "es": (
        "Confirme su dirección de correo",
        (
            "Se ha indicado esta dirección para recibir avisos. Si lo ha hecho usted, abra este enlace antes de 24 "
            "horas y confírmela allí:\n\n%s\n\n"
            "Si no ha sido usted, no haga nada: no se enviarán avisos a esta dirección.\n"
        ),
    ),
    "pt": (
        "Confirme o seu endereço de e-mail",
        (
            "Este endereço foi indicado para receber notificações. Se foi você, abra esta ligação no prazo de 24 "
            "horas e confirme-o aí:\n\n%s\n\n"
            "Se não foi, não faça nada: não serão enviadas notificações para este endereço.\n"
        ),
    ),
}


class AddressConfirmation(msgspec.Struct, frozen=True, kw_only=True):
    """The payload of the message. `url`: the link to confirm the address, written in when the message is sent.

    `address`: the id of its row; None if nothing has to be confirmed. `language`: of the page on which it was entered.
    `until`: when the link expires, in seconds since 1970.
    """

    address: int | None
    language: str
    until: int
    url: str = ""


def confirmation_content(asked: AddressConfirmation, to: Recipient) -> Content:
    """Return the message in the language of the recipient, else in that of the page."""
    wanted = (to.locale or "").replace("_", "-").partition("-")[0].lower()
    title, body = TEXTS.get(wanted) or TEXTS.get(asked.language) or TEXTS["en"]
    return Content(title, body % asked.url)


def confirmation_url(settings: Settings, channel: str, taken: ClaimedDelivery, payload: msgspec.Raw) -> str | None:
    """Return the link of one message; None without the settings `public_url` and `secret`, or for another payload."""
    if settings.public_url is None or settings.secret is None:
        return None
    try:
        asked = msgspec.json.decode(payload, type=AddressConfirmation)
    except msgspec.ValidationError:
        # Rendering fails for this message alone.
        return None
    claim = AddressClaim(taken.tenant, taken.recipient, channel, taken.address or "", asked.until)
    return f"{settings.public_url}{PATH}{make_token(settings.secret, claim)}"


def with_url(payload: msgspec.Raw, url: str | None) -> msgspec.Raw:
    """Return the payload with the link; ConfigurationError without one."""
    if url is None:
        raise ConfigurationError("this message has no link: set SERENO_PUBLIC_URL and SERENO_SECRET for the workers")
    values: dict[str, Any] = msgspec.json.decode(payload)
    return msgspec.Raw(msgspec.json.encode({**values, "url": url}))
