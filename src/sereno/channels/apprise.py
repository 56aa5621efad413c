"""All services that Apprise supports: an address is an Apprise URL, which contains the secrets.

Apprise returns success or failure, never the reason. A failure may mean that nothing was sent or that the response was
lost; so the outcome is unknown, and the delivery waits for an operator. A native channel, where one exists, is better.

An Apprise URL can name any server, and for some services a local file. Unless the exchange may reach private networks,
the account must list the allowed services:

    account = {"schemes": ["pover", "matrixs"]}

The account of a tenant chooses among those that the channel was constructed with: `Apprise(schemes=["pover"])`.
"""

import asyncio
import importlib.util
import re
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from sereno.channels.contract import Channel, Exchange, Message
from sereno.channels.outcome import Down, Failed, Invalid, Outcome, Retryable, Sent, Unknown
from sereno.errors import ConfigurationError, InvalidAddress

if TYPE_CHECKING:
    from apprise import AppriseResult, NotifyBase

# Characters of an Apprise URL.
LONGEST_ADDRESS = 4096
FORMATS = ("text", "markdown", "html")
KINDS = ("info", "success", "warning", "failure")

_ADDRESS = re.compile(r"([a-z0-9][a-z0-9+.-]{0,39})://\S+", re.IGNORECASE)


class Apprise(Channel):
    """Passes one message at a time to Apprise, in a thread. `schemes`: for accounts without their own."""

    name: ClassVar[str] = "apprise"
    on_unknown: ClassVar[Literal["retry", "park"]] = "park"

    def __init__(self, schemes: Collection[str] | None = None) -> None:
        if importlib.util.find_spec("apprise") is None:
            raise ConfigurationError(
                "the channel apprise needs a package that is not installed: pip install 'sereno[apprise]'"
            )
        self._schemes = schemes

    def check_address(self, address: str) -> str:
        _scheme(address)
        return address

    async def send(self, batch: Sequence[Message], exchange: Exchange) -> Sequence[Outcome]:
        return [await self._send(message, exchange) for message in batch]

    async def _send(self, message: Message, exchange: Exchange) -> Outcome:
        try:
            scheme = _scheme(message.address)
            schemes = self._allowed(exchange)
            options = _options(message.options)
        except InvalidAddress as error:
            return Invalid("bad_address", str(error))
        except ConfigurationError as error:
            return Down("schemes", str(error))
        except ValueError as error:
            return Failed("bad_message", str(error))
        if schemes is None and not exchange.private:
            return Down("schemes", "no Apprise services are allowed: list them with Apprise(schemes=[…])")
        if schemes is not None and scheme not in schemes:
            return Invalid("scheme", f"the account does not allow {scheme}://")
        # Apprise refuses an empty message.
        if not message.title.strip() and not message.body.strip():
            return Failed("empty", "neither title nor body")
        return await asyncio.to_thread(_notify, message, options, exchange.timeout)

    def _allowed(self, exchange: Exchange) -> Collection[str] | None:
        """Return the allowed services; None if they are not configured."""
        of_account = _schemes(exchange.account.get("schemes"))
        if of_account is None:
            return self._schemes
        if not exchange.own or (self._schemes is None and exchange.private):
            return of_account
        return None if self._schemes is None else [scheme for scheme in of_account if scheme in self._schemes]


def _notify(message: Message, options: Mapping[str, str], timeout: float) -> Outcome:
    """Send one message; blocks, so it runs in a thread. Error texts of Apprise are dropped: they may repeat the URL."""
    import apprise  # noqa: PLC0415 - a tenth of a second, and an extra

    try:
        service = apprise.Apprise.instantiate(message.address, apprise.AppriseAsset(storage_mode="memory"))
        if service is None:
            return Invalid("unreadable", "Apprise cannot read this URL")
        _restrict(service, timeout)
    except Exception as error:  # noqa: BLE001 - code of 130 services; nothing was sent yet
        return Retryable("apprise", type(error).__name__)
    try:
        result = apprise.Apprise(service).notify(
            message.body,
            title=message.title,
            timeout=timeout,
            body_format=options["format"],
            notify_type=options["type"],
        )
    except Exception as error:  # noqa: BLE001 - code of 130 services; the message may have been sent
        return Unknown("apprise", type(error).__name__)
    return _outcome(result)


def _restrict(service: "NotifyBase", timeout: float) -> None:
    """Override what a URL could set: retries, timeouts, redirects, and ignored failures."""
    service.retry = 0
    service.optional = False
    service.redirects = False
    service.socket_connect_timeout = service.socket_read_timeout = timeout


def _outcome(result: "AppriseResult") -> Outcome:
    if not result.results:
        return Failed("refused", "Apprise did not try to send the message")
    if all(attempt for each in result for attempt in each):
        return Sent()
    return Unknown("apprise", "Apprise reports a failure without a reason")


def _scheme(address: str) -> str:
    found = _ADDRESS.fullmatch(address)
    if found is None or len(address) > LONGEST_ADDRESS or not address.isprintable():
        raise InvalidAddress("an address for Apprise is a URL such as pover://…")
    return found[1].lower()


def _schemes(value: Any) -> Collection[str] | None:
    if value is None or (
        isinstance(value, list | tuple | set | frozenset) and all(isinstance(each, str) for each in value)
    ):
        return value
    raise ConfigurationError("schemes must be a list of services, such as pover")


def _options(options: Mapping[str, Any]) -> dict[str, str]:
    """Return `format` of the body, plain text by default so that no service reads it as markup, and `type`."""
    chosen, kind = options.get("format", FORMATS[0]), options.get("type", KINDS[0])
    if chosen not in FORMATS:
        raise ValueError(f"format must be one of {', '.join(FORMATS)}")
    if kind not in KINDS:
        raise ValueError(f"type must be one of {', '.join(KINDS)}")
    return {"format": chosen, "type": kind}
