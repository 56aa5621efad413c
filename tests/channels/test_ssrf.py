"""Only public addresses are called, in every notation of a URL."""

import ipaddress
import socket
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sereno.channels import ssrf
from sereno.channels.ssrf import (
    MOST_ADDRESSES,
    AddressRefused,
    SSRFGuard,
    guarded_session,
    is_own,
    is_public,
    is_refused,
    objection,
    read_target,
)
from sereno.errors import InvalidAddress
from sereno.testing.webhook import WebhookReceiver

# Unicode characters that are normalised to ASCII: full-width letters, digits in circles.
FULL_WIDTH = {code: code + 0xFEE0 for code in map(ord, "0123456789abcdefxABCDEFX.")}
CIRCLED = {ord("0") + digit: 0x2460 + digit - 1 for digit in range(1, 10)}

INSIDE = [
    "127.0.0.1",
    "127.255.255.254",
    "0.0.0.0",  # noqa: S104 - to be refused
    "10.0.0.1",
    "100.64.0.1",
    "169.254.169.254",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.192",
    "192.168.1.1",
    "198.18.0.1",
    "203.0.113.9",
    "224.0.0.1",
    "255.255.255.255",
]


def encodings(ip: str) -> Iterator[str]:
    """Yield the same IPv4 address in all notations that programs accept."""
    number = int(ipaddress.IPv4Address(ip))
    a, b, c, d = ipaddress.IPv4Address(ip).packed
    low, middle = number & 0xFFFF, number & 0xFFFFFF
    plain = [ip, str(number), f"{number:#x}", f"0{number:o}", f"{a}.{middle}", f"{a}.{b}.{low}", f"{a:#x}.{middle:#o}"]
    plain[-1] = plain[-1].replace("0o", "0")
    plain += [".".join(f"{part:#x}" for part in (a, b, c, d)), ".".join(f"0{part:o}" for part in (a, b, c, d))]
    plain += [f"{a:#x}.0{b:o}.{low}", f"0x{number:08X}", f"0X{number:x}", f"000{a:o}.{b}.{c}.{d}"]
    yield from plain
    yield from (f"{text}." for text in plain)
    yield from (text.translate(FULL_WIDTH) for text in plain)
    yield from (ip.translate(CIRCLED), ip.replace(".", "。"), ip.replace(".", "｡"))
    for address in embeddings(ip):
        yield f"[{address}]"
        yield f"[{address.exploded.upper()}]"
    yield from (f"[::ffff:{ip}]", f"[::{ip}]", f"[64:ff9b::{ip}]", f"[::ffff:{ip}%25eth0]", f"[::ffff:0:{ip}]")


def embeddings(ip: str) -> list[ipaddress.IPv6Address]:
    """IPv6 addresses that embed the IPv4 address: mapped, compatible, NAT64 twice, 6to4, Teredo server and client."""
    number = int(ipaddress.IPv4Address(ip))
    return [
        ipaddress.IPv6Address(prefix | embedded)
        for prefix, embedded in (
            (0xFFFF << 32, number),
            (0, number),
            (0x64FF9B << 96, number),
            (0x64FF9B0001 << 80, number),
            (0x2002 << 112, number << 80),
            (0x20010000 << 96, number << 64),
            (0x20010000 << 96, number ^ 0xFFFFFFFF),
        )
    ]


TABLE = [host for ip in INSIDE for host in encodings(ip)] + [
    "[::]",
    "[::1]",
    "[0:0:0:0:0:0:0:1]",
    "[fe80::1]",
    "[fe80::1%25eth0]",
    "[fe80::1%eth0]",
    "[fec0::1]",
    "[fc00::1]",
    "[fd00:ec2::254]",
    "[ff02::1]",
    "[2001:db8::1]",
    "[3fff::1]",
    "[100::1]",
    "[5f00::1]",
    "127.1",
    "127.0.1",
    "0",
    "0x",
    "0.0",
    "8.8.8.8@127.0.0.1",
    "8.8.8.8:80@127.0.0.1",
    "8.8.8.8%40127.0.0.1",
    "8.8.8.8\\@127.0.0.1",
    "8.8.8.8\t@127.0.0.1",
    "127.0.0.1%2f.example.com@127.0.0.1",
    "127.0.0.1\\.example.com",
    "%31%32%37.0.0.1",
    "127.0.0.1%00.example.com",
    "127%2e0%2e0%2e1",
    "168.63.129.16",
]


class NumericResolver:
    """The system's resolver without DNS: numbers in any notation, and localhost."""

    async def resolve(self, host: str, port: int, family: socket.AddressFamily) -> list[Any]:
        flags = 0 if host.rstrip(".") == "localhost" else socket.AI_NUMERICHOST
        found = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM, flags=flags)
        return [resolved(str(address[0]), port, kind) for kind, _, _, _, address in found]


class ScriptedResolver:
    """Returns one list of addresses per call."""

    def __init__(self, *results: list[str]) -> None:
        self.left = list(results)
        self.calls = 0

    async def resolve(self, host: str, port: int, family: socket.AddressFamily) -> list[Any]:  # noqa: ARG002 - any name
        self.calls += 1
        return [resolved(ip, port, socket.AF_INET6 if ":" in ip else socket.AF_INET) for ip in self.left.pop(0)]


def resolved(ip: str, port: int, family: socket.AddressFamily) -> dict[str, Any]:
    return {"hostname": "somewhere", "host": ip, "port": port, "family": family, "proto": 0, "flags": 0}


def all_but_first_loopback(ip: str) -> bool:
    """Refuse everything but 127.0.0.1, which stands for the internet in this test."""
    return ip != "127.0.0.1"


def test_the_table_is_large() -> None:
    assert len(set(TABLE)) >= 500


def passes_the_check_of_urls(host: str) -> bool:
    try:
        target = read_target(f"https://{host}/hook")
    except InvalidAddress:
        return False
    return target.address is None or objection(target, (80, 443)) != "a webhook's host must be public"


def test_no_notation_of_a_private_address_passes_the_check_of_urls() -> None:
    assert [host for host in TABLE if passes_the_check_of_urls(host)] == []


@pytest.mark.slow
async def test_no_notation_of_a_private_address_is_connected_to() -> None:
    not_refused: list[tuple[str, str]] = []
    host = ""

    def check(ip: str) -> bool:
        if not is_refused(ip):
            not_refused.append((host, ip))
        return is_refused(ip)

    async with guarded_session(5.0, inner=NumericResolver(), refuses=check) as session:
        for host in [*TABLE, "localhost", "LOCALHOST."]:
            try:
                response = await session.get(f"http://{host}/", allow_redirects=False)
            except (aiohttp.ClientError, ValueError):
                continue
            not_refused.append((host, f"status {response.status}"))
    assert not_refused == []


async def test_a_literal_private_address_is_refused(subtests: pytest.Subtests) -> None:
    for ip in ["127.0.0.1", "10.0.0.1", "169.254.169.254"]:
        with subtests.test(ip=ip):
            async with guarded_session(5.0) as session:
                with pytest.raises(aiohttp.ClientConnectorError) as caught:
                    await session.get(f"http://{ip}/")
            assert isinstance(caught.value.os_error, AddressRefused)


PRIVATE_NETWORKS = """
    0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24
    192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4 ::/128 ::1/128
    ::/96 64:ff9b::/96 64:ff9b:1::/48 100::/64 2001::/32 2001:2::/48 2001:10::/28 2001:20::/28
    2001:db8::/32 2002::/16 3fff::/20 5f00::/16 fc00::/7 fe80::/10 fec0::/10 ff00::/8
""".split()  # noqa: SIM905 - a table, not a page


def test_private_networks_are_refused_from_first_to_last_address(subtests: pytest.Subtests) -> None:
    for network in PRIVATE_NETWORKS:
        with subtests.test(network=network):
            addresses = ipaddress.ip_network(network)
            assert not is_public(str(addresses[0]))
            assert not is_public(str(addresses[-1]))


PUBLIC_ADDRESSES = """
    1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.0
    169.253.255.255 172.15.255.255 172.32.0.0 192.0.1.0 192.167.255.255 198.17.255.255 198.20.0.0
    223.255.255.255 ::ffff:8.8.8.8 2001:4860:4860::8888 2606:4700::1111 2a00:1450:4001::1
""".split()  # noqa: SIM905 - a table, not a page


def test_public_addresses_are_public(subtests: pytest.Subtests) -> None:
    for ip in PUBLIC_ADDRESSES:
        with subtests.test(ip=ip):
            assert is_public(ip)
            assert not is_refused(ip)


def test_invalid_addresses_are_not_public(subtests: pytest.Subtests) -> None:
    for text in ["", "localhost", "127.1", "0x08080808", "010.8.8.8", "8.8.8.8.", "2606:4700::1%eth0"]:
        with subtests.test(text=text):
            assert not is_public(text)


@given(st.ip_addresses(v=4))
def test_no_ipv4_network_that_python_calls_private_is_public(ip: ipaddress.IPv4Address) -> None:
    assert ip.is_global or not is_public(str(ip))


@given(st.ip_addresses(v=6))
def test_no_ipv6_network_that_python_calls_private_is_public(ip: ipaddress.IPv6Address) -> None:
    assert (ip.ipv4_mapped or ip).is_global or not is_public(str(ip))


@settings(max_examples=25)
@given(st.ip_addresses(v=4))
def test_all_notations_of_an_address_give_one_url(ip: ipaddress.IPv4Address) -> None:
    written = [host for host in encodings(str(ip)) if "[" not in host]
    assert {read_target(f"https://{host}/").url for host in written} == {f"https://{ip}/"}


def test_loopback_addresses_are_own(subtests: pytest.Subtests) -> None:
    for ip in ["127.0.0.1", "::1", "::ffff:127.0.0.1"]:
        with subtests.test(ip=ip):
            assert is_own(ip)


def test_a_network_address_of_this_machine_is_own() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("198.51.100.7", 9))
        except OSError:
            pytest.skip("this machine has no network")
        assert is_own(probe.getsockname()[0])


def test_a_public_address_of_this_machine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that listens on all addresses is reached by it."""
    assert not is_refused("8.8.8.8")
    monkeypatch.setattr(ssrf, "_binds", lambda ip: ip == "8.8.8.8")
    assert is_refused("8.8.8.8")


def test_addresses_of_others_are_not_own(subtests: pytest.Subtests) -> None:
    for ip in ["8.8.8.8", "198.51.100.7", "2606:4700::1111", "nonsense"]:
        with subtests.test(ip=ip):
            assert not is_own(ip)


async def test_one_private_address_refuses_the_whole_name() -> None:
    async with WebhookReceiver([]) as receiver:
        port = receiver.url.rpartition(":")[2]
        resolver = ScriptedResolver(["127.0.0.1", "127.0.0.2"])
        async with guarded_session(5.0, inner=resolver, refuses=all_but_first_loopback) as session:
            with pytest.raises(aiohttp.ClientConnectorDNSError) as caught:
                await session.post(f"http://somewhere.test:{port}/")
    assert isinstance(caught.value.os_error, AddressRefused)
    assert receiver.log == []


async def test_a_name_is_resolved_once_per_request() -> None:
    async with WebhookReceiver([]) as receiver:
        url = f"http://somewhere.test:{receiver.url.rpartition(':')[2]}/"
        resolver = ScriptedResolver(["127.0.0.1"], ["127.0.0.2"], ["127.0.0.1"])
        async with guarded_session(5.0, inner=resolver, refuses=all_but_first_loopback) as session:
            async with session.post(url) as response:
                assert response.status == 401
            assert resolver.calls == 1
            with pytest.raises(aiohttp.ClientConnectorDNSError):
                await session.post(url)
            async with session.post(url) as response:
                assert response.status == 401
    assert resolver.calls == 3
    assert len(receiver.log) == 2


async def test_the_socket_is_checked_even_if_the_name_was_not() -> None:
    guard = SSRFGuard(ScriptedResolver(), is_refused)
    with pytest.raises(AddressRefused):
        guard.socket((socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 80)))


async def test_all_addresses_are_checked_and_a_few_are_tried() -> None:
    many = ["127.0.0.1"] * 1000
    guard = SSRFGuard(ScriptedResolver(many, [*many, "10.0.0.1"]), all_but_first_loopback)
    assert len(await guard.resolve("somewhere.test", 80, socket.AF_INET)) == MOST_ADDRESSES
    with pytest.raises(AddressRefused):
        await guard.resolve("somewhere.test", 80, socket.AF_INET)


async def test_a_name_without_an_address_is_refused(subtests: pytest.Subtests) -> None:
    for results in [[], ["localhost"], ["not an address"]]:
        with subtests.test(results=results), pytest.raises(OSError, match=r"address refused|no address"):
            await SSRFGuard(ScriptedResolver(results), is_refused).resolve("somewhere.test", 80, socket.AF_INET)
