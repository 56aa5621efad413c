"""Apprise with a local receiver of its json:// service."""

import logging
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from sereno.channels.apprise import Apprise
from sereno.channels.contract import Exchange, Message
from sereno.channels.outcome import Down, Failed, Invalid, Outcome, Sent, Unknown
from sereno.errors import ConfigurationError, InvalidAddress
from sereno.testing.provider import Fault, Provider, Request

# One of its services imports a module that Python deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")

SECRET = "canary-5up3r"  # noqa: S105 - invented; the tests search for it


class Receiver(Provider):
    """Accepts every request with `status`."""

    status = 200

    async def answer(self, request: Request) -> web.StreamResponse:
        headers = {"Location": f"{self.url}/elsewhere"} if "elsewhere" not in request.path else {}
        return web.Response(status=self.status, headers=headers)

    def address(self, more: str = "") -> str:
        return f"json://user:{SECRET}@{self.url.removeprefix('http://')}/inbox{more}"


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with Receiver() as started:
        yield started


def message(address: str, **more: Any) -> Message:
    return Message(delivery=1, key="k", address=address, **{"title": "Pedido", "body": "Chegou"} | more)


async def sent(*batch: Message, schemes: Any = ("json",), private: bool = False, timeout: float = 5.0) -> list[Outcome]:
    account = {} if schemes is None else {"schemes": schemes}
    async with Exchange(account, private=private, timeout=timeout) as exchange:
        return list(await Apprise().send(batch, exchange))


async def test_a_message_arrives(receiver: Receiver) -> None:
    assert await sent(message(receiver.address(), options={"type": "warning"})) == [Sent()]
    (request,) = receiver.log
    assert {name: request.json()[name] for name in ("title", "message", "type")} == {
        "title": "Pedido",
        "message": "Chegou",
        "type": "warning",
    }


async def test_each_url_has_its_own_outcome(receiver: Receiver) -> None:
    outcomes = await sent(message(receiver.address()), message("json://"), message(receiver.address()))
    assert [type(outcome) for outcome in outcomes] == [Sent, Invalid, Sent]
    assert len(receiver.log) == 2


FAULTS: tuple[Fault, ...] = ("half", "silence", "close", "busy", "broken", "denied")


@pytest.mark.slow
async def test_a_failure_without_a_reason_is_unknown_and_waits_for_an_operator(
    caplog: pytest.LogCaptureFixture, subtests: pytest.Subtests
) -> None:
    for fault in FAULTS:
        with subtests.test(fault=fault):
            async with Receiver() as receiver:
                caplog.set_level(logging.INFO)
                receiver.fault = fault
                (outcome,) = await sent(message(receiver.address()), timeout=1.0 if fault == "silence" else 20.0)
                assert isinstance(outcome, Unknown)
                assert outcome.code == "apprise"
                assert SECRET not in repr(outcome)
                assert SECRET not in caplog.text
                assert Apprise.on_unknown == "park"


async def test_a_url_cannot_set_retries_redirects_or_ignored_failures(receiver: Receiver) -> None:
    receiver.status = 307
    address = receiver.address("?retry=3&optional=yes&redirect=yes")
    (outcome,) = await sent(message(address))
    assert isinstance(outcome, Unknown)
    assert [request.path for request in receiver.log] == ["/inbox"]


async def test_a_url_unknown_to_apprise_is_invalid(subtests: pytest.Subtests) -> None:
    for address in ["json://", "nosuchservice://a/b", "tgram://nonsense"]:
        with subtests.test(address=address):
            (outcome,) = await sent(message(address), schemes=None, private=True)
            assert isinstance(outcome, Invalid)


async def test_only_the_services_of_the_account_are_allowed(receiver: Receiver) -> None:
    (outcome,) = await sent(message(receiver.address()), schemes=["pover"])
    assert isinstance(outcome, Invalid)
    for schemes in (None, "json", 7, [7]):
        (outcome,) = await sent(message(receiver.address()), schemes=schemes)
        assert isinstance(outcome, Down), "no services are allowed"
    assert receiver.log == []
    assert await sent(message(receiver.address()), schemes=None, private=True) == [Sent()]


async def test_a_tenant_chooses_among_the_services_of_the_channel(receiver: Receiver) -> None:
    async def type_of(allowed: list[str] | None, theirs: list[str] | None, *, private: bool = False) -> type[Outcome]:
        account = {} if theirs is None else {"schemes": theirs}
        async with Exchange(account, own=True, private=private) as exchange:
            (outcome,) = await Apprise(allowed).send([message(receiver.address())], exchange)
        return type(outcome)

    assert await type_of(["pover"], ["json"]) is Invalid
    assert await type_of(["json"], []) is Invalid
    assert await type_of(None, ["json"]) is Down
    assert receiver.log == []
    assert await type_of(["json", "pover"], ["json"]) is Sent
    assert await type_of(["json"], None) is Sent
    assert await type_of(None, ["json"], private=True) is Sent
    assert await type_of(None, ["pover"], private=True) is Invalid
    assert len(receiver.log) == 3


INVALID_MESSAGES: list[dict[str, Any]] = [
    {"title": "", "body": " "},
    {"options": {"format": "rtf"}},
    {"options": {"type": ["info"]}},
]


async def test_an_invalid_message_fails(receiver: Receiver, subtests: pytest.Subtests) -> None:
    for more in INVALID_MESSAGES:
        with subtests.test(more=more):
            (outcome,) = await sent(message(receiver.address(), **more))
            assert isinstance(outcome, Failed)
            assert receiver.log == []


def test_an_address_is_a_url_on_one_line(subtests: pytest.Subtests) -> None:
    for address in ["", "nothing", "json://", "json://a b", "json://a\nb", "json://a\0b", "json://" + "a" * 5000]:
        with subtests.test(length=len(address), start=address[:9]), pytest.raises(InvalidAddress):
            Apprise().check_address(address)


def test_without_the_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)
    with pytest.raises(ConfigurationError, match=r"sereno\[apprise\]"):
        Apprise()
