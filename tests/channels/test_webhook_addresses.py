"""Addresses of webhooks: one form, and only public ones unless private is set."""

import asyncio
import socket
from typing import Any

import pytest

from sereno.channels.outcome import Delivered, Failed, Invalid, Retryable
from sereno.channels.webhook import Webhook
from sereno.errors import InvalidAddress
from sereno.testing.webhook import WebhookReceiver
from tests.channels.test_webhook import NEW, message, send


class FixedResolver:
    """A resolver with a fixed result: an address, an error, or silence."""

    def __init__(self, answer: str | Exception | None) -> None:
        self.answer = answer

    async def resolve(self, host: str, port: int, family: socket.AddressFamily) -> list[Any]:  # noqa: ARG002 - IPv4
        match self.answer:
            case None:
                await asyncio.Event().wait()
            case Exception() as error:
                raise error
        known = {"hostname": host, "host": self.answer, "port": port}
        return [{**known, "family": socket.AF_INET, "proto": 0, "flags": 0}]


async def test_a_name_that_cannot_be_resolved_is_retried(subtests: pytest.Subtests) -> None:
    for error in [socket.gaierror(-2, "no such name"), OSError("down"), TimeoutError(), UnicodeError("label too long")]:
        with subtests.test(error=error):
            sent = message("https://hooks.example.com/")
            assert await send(sent, Webhook(resolver=FixedResolver(error)), private=False) == Retryable("unresolved")


async def test_a_silent_name_server_is_retried() -> None:
    outcome = await send(message("https://hooks.example.com/"), Webhook(resolver=FixedResolver(None)), timeout=0.4)
    assert outcome == Retryable("unreachable", "no connection in time")


async def test_a_name_with_a_private_address_is_refused_without_details(subtests: pytest.Subtests) -> None:
    for ip in ["127.0.0.1", "169.254.169.254", "10.1.2.3", "100.64.0.9"]:
        with subtests.test(ip=ip):
            sent = message("https://hooks.example.com/")
            assert await send(sent, Webhook(resolver=FixedResolver(ip)), private=False) == Failed("address_refused")


async def test_a_name_with_a_private_address_is_called_if_private_is_set() -> None:
    async with WebhookReceiver([NEW]) as receiver:
        url = receiver.url.replace("127.0.0.1", "hooks.example.com")
        assert await send(message(url), Webhook(resolver=FixedResolver("127.0.0.1"))) == Delivered()


async def test_stored_addresses_are_checked_again_when_sending(subtests: pytest.Subtests) -> None:
    for address in [
        "https://127.0.0.1/",
        "https://2130706433/",
        "https://[::1]/",
        "https://[::ffff:10.0.0.1]/",
        "http://example.com/",
        "https://example.com:8443/",
    ]:
        with subtests.test(address=address):
            assert await send(message(address), private=False) == Failed("address_refused")


async def test_an_address_that_is_not_a_url_is_invalid(subtests: pytest.Subtests) -> None:
    for address in ["", "nonsense", "ftp://example.com/", "https://u:hunter2@example.com/"]:
        with subtests.test(address=address):
            outcome = await send(message(address))
            assert isinstance(outcome, Invalid)
            assert outcome.code == "bad_address"
            assert "hunter2" not in outcome.message


NORMALISED_URLS = [
    ("https://example.com", "https://example.com/"),
    ("HTTPS://EXAMPLE.com:443/A?b=c#d", "https://example.com/A?b=c"),
    ("https://example.com.:80/", "https://example.com:80/"),
    ("https://bücher.example/ü", "https://xn--bcher-kva.example/%C3%BC"),
    ("https://\uff45\uff58ample.com/", "https://example.com/"),
    ("https://0x08.8.2056/", "https://8.8.8.8/"),
    ("https://[2606:4700:0::1111]/", "https://[2606:4700::1111]/"),
    ("https://[::ffff:8.8.8.8]/", "https://8.8.8.8/"),
    ("https://a_b.example.com/%7Eme", "https://a_b.example.com/%7Eme"),
]


def test_an_address_is_stored_in_one_form(subtests: pytest.Subtests) -> None:
    for written, stored in NORMALISED_URLS:
        with subtests.test(written=written):
            assert Webhook().check_address(written) == stored
            assert Webhook().check_address(stored) == stored


INVALID_URLS = [
    "",
    "example.com",
    "//example.com/",
    "file:///etc/passwd",
    "gopher://example.com/",
    "https://",
    "https:///path",
    "https://user@example.com/",
    "https://user:word@example.com/",
    "https://@example.com/",
    "https://example.com:0/",
    "https://example.com:70000/",
    "https://example.com:x/",
    "https://example.com/a b",
    "https://example.com/\r\nhost: x",
    "https://exa\u200bmple.com/",
    "https://example.com\\@evil.example/",
    "https://-a-.example.com/",
    "https://a..example.com/",
    "https://1.2.3.4.5/",
    "https://1_0.0.0.1/",
    "https://09.0.0.1/",
    "https://256.0.0.1/",
    "https://℀.example.com/",
    "https://[::1/",
    "https://[v1.x]/",
    "https://" + "a" * 64 + ".example.com/",
    "https://example.com/" + "a" * 2048,
    "https://example.com/\ud800",
]


def test_invalid_urls_are_refused_even_if_private_is_set(subtests: pytest.Subtests) -> None:
    for address in INVALID_URLS:
        with subtests.test(address=address[:80]), pytest.raises(InvalidAddress):
            Webhook(private=True).check_address(address)


def test_private_addresses_are_accepted_only_if_private_is_set(subtests: pytest.Subtests) -> None:
    for address in ["http://example.com/", "https://example.com:8443/", "https://10.0.0.1/", "http://localhost:9000/"]:
        with subtests.test(address=address):
            with pytest.raises(InvalidAddress):
                Webhook().check_address(address)
            assert Webhook(private=True).check_address(address) == address


async def test_allowed_ports_are_a_setting() -> None:
    assert Webhook(ports=[8443]).check_address("https://example.com:8443/") == "https://example.com:8443/"
    sent, channel = message("https://example.com:8443/"), Webhook(resolver=FixedResolver(OSError("down")))
    assert await send(sent, channel, private=False) == Failed("address_refused")
    assert await send(sent, channel, private=False, account={"ports": [8443]}) == Retryable("unresolved")
