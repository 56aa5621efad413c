"""Conformance tests for channels: what the engine relies on, checked with a real channel and a provider with faults.

    class TestPager(ChannelExam):
        @asynccontextmanager
        async def setup(self) -> AsyncIterator[Subject]:
            async with PagerService() as provider, Exchange({"token": "…", "url": provider.url}) as exchange:
                yield Subject(Pager(), provider, exchange, lambda count: [Message(…) for _ in range(count)])

It needs only pytest. Every test starts with a new subject.
"""

import asyncio
import inspect
import re
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import wraps
from typing import Any, ClassVar, Concatenate, ParamSpec, Protocol, get_args

import msgspec
import pytest

from sereno.channels.contract import Callback, Channel, Exchange, Message
from sereno.channels.outcome import Delivered, Down, Outcome, Retryable, Sent, Unknown
from sereno.errors import InvalidAddress, RejectedCallback
from sereno.testing.provider import RETRY_AFTER, Fault, Provider

FAULTS: tuple[Fault, ...] = get_args(Fault)
# Faults after which it is unknown whether the provider accepted the message.
DOUBTFUL: tuple[Fault, ...] = ("html", "half", "silence", "close")
# Seconds: the timeout of a channel for a silent provider, and the time after which a call of `send` counts as hung.
SHORT_TIMEOUT = 0.5
TIMEOUT = 20.0
# Messages in a batch; characters of an outcome's code and message.
MOST_IN_A_BATCH = 10_000
LONGEST_CODE = 100
LONGEST_TEXT = 1000
# Characters. Shorter settings are ordinary words, which may appear in an outcome by accident.
SHORTEST_SECRET = 8

GARBAGE = (
    b"",
    b"null",
    b"0",
    b'"text"',
    b"{}",
    b"[]",
    b"[{}]",
    b'{"data": [',
    b"\x00\xff\xfe",
    b"a=1&b=%zz",
    b"[" * 100_000,
    b"<html></html>",
)

_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_CODE = re.compile(rf"[\x21-\x7e]{{1,{LONGEST_CODE}}}")

P = ParamSpec("P")


class LoggingProvider(Protocol):
    """A provider with a log of its requests and a fault to set. `sereno.testing.provider.Provider` is one."""

    fault: Any

    @property
    def log(self) -> list[Any]: ...


@dataclass(frozen=True)
class Subject:
    """What is tested. `messages(n)`: n different messages that the provider accepts. `secrets`: must not leak."""

    channel: Channel
    provider: LoggingProvider
    exchange: Exchange
    messages: Callable[[int], Sequence[Message]]
    secrets: Collection[str] = ()

    async def send(self, batch: Sequence[Message]) -> Sequence[Outcome]:
        """Send, and check the outcomes: one per message, legal, storable and free of secrets."""
        async with asyncio.timeout(TIMEOUT):
            outcomes = await self.channel.send(batch, self.exchange)
        assert len(outcomes) == len(batch), f"{len(outcomes)} outcomes for {len(batch)} messages"
        for outcome in outcomes:
            self._check(outcome)
        return outcomes

    def _check(self, outcome: Outcome) -> None:
        assert isinstance(outcome, get_args(Outcome)), f"{outcome!r} is not an outcome"
        match outcome:
            case Sent(provider_id) | Delivered(provider_id):
                assert provider_id is None or (provider_id and "\0" not in provider_id)
            case _:
                assert _CODE.fullmatch(outcome.code), f"{outcome.code!r} is not a code"
                assert len(outcome.message) <= LONGEST_TEXT, "the message of an outcome must be one or two sentences"
                assert "\0" not in outcome.message, "a text with NUL cannot be stored"
        leaked = [secret for secret in (*self.secrets, *_texts(self.exchange.account)) if secret in repr(outcome)]
        assert not leaked, f"the outcome {type(outcome).__name__} contains a secret of the account"


def question(ask: Callable[Concatenate[Any, Subject, P], Awaitable[None]]) -> Callable[Concatenate[Any, P], None]:
    """Wrap a test that gets a new subject, on its own event loop."""

    @wraps(ask)
    def test(self: "ChannelExam", /, *args: P.args, **kwargs: P.kwargs) -> None:
        async def run() -> None:
            async with self.setup() as subject:
                await ask(self, subject, *args, **kwargs)

        asyncio.run(run())

    # The subject is not a fixture of pytest.
    signature = inspect.signature(ask)
    parameters = [parameter for name, parameter in signature.parameters.items() if name != "subject"]
    test.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return test


class ChannelExam:
    """The conformance tests. Subclass it, implement `setup`, and declare where the channel legitimately differs."""

    # The faults that this provider supports.
    faults: ClassVar[Collection[Fault]] = FAULTS
    # Allowed outcomes for refused credentials; Invalid where the secret is part of the address.
    denied: ClassVar[tuple[type, ...]] = (Down,)
    # Whether the provider responds with a status only, so that an HTML page with 200 counts as success.
    status_is_enough: ClassVar[bool] = False

    def setup(self) -> AbstractAsyncContextManager[Subject]:
        """Return a channel and its provider, new for each test."""
        raise NotImplementedError

    def keys_sent(self, subject: Subject, batch: Sequence[Message]) -> Sequence[str]:
        """Return the keys that the provider received, one per message, in order; empty if the channel sends none."""
        logged = [f"{msgspec.to_builtins(request, builtin_types=(bytes,))}" for request in subject.provider.log]
        return [message.key for text in logged for message in batch if message.key in text]

    @question
    async def test_its_name_and_limits_are_valid(self, subject: Subject) -> None:
        channel = subject.channel
        assert _NAME.fullmatch(channel.name), (
            f"{channel.name!r} is not a valid name: use lower-case letters, digits and _"
        )
        assert 1 <= channel.batch <= MOST_IN_A_BATCH
        assert 1 <= channel.receipts_batch <= MOST_IN_A_BATCH
        assert channel.at_once is None or channel.at_once >= 1
        assert channel.largest is None or channel.largest >= 1
        assert channel.on_unknown in ("retry", "park")
        assert channel.receipts_after is None or 0 <= channel.receipts_after < channel.receipts_for

    @question
    async def test_valid_addresses_are_accepted_and_broken_ones_refused(self, subject: Subject) -> None:
        check = subject.channel.check_address
        (message,) = subject.messages(1)
        stored = check(message.address)
        assert check(stored) == stored, "a stored address must be valid"
        middle = len(stored) // 2
        for broken in ("", *(stored[:middle] + mark + stored[middle:] for mark in ("\n", "\r\n", "\0"))):
            with pytest.raises(InvalidAddress):
                check(broken)

    @question
    async def test_an_empty_batch_has_no_outcomes(self, subject: Subject) -> None:
        await subject.send([])
        assert not subject.provider.log, "something was sent"

    @question
    async def test_a_message_is_sent(self, subject: Subject) -> None:
        (outcome,) = await subject.send(subject.messages(1))
        _only((outcome,), Sent, Delivered)
        assert subject.provider.log, "nothing has reached the provider"

    @question
    async def test_a_full_batch_is_sent(self, subject: Subject) -> None:
        outcomes = await subject.send(subject.messages(subject.channel.batch))
        _only(outcomes, Sent, Delivered)

    @question
    async def test_outcomes_are_in_order_and_an_invalid_message_affects_no_other(self, subject: Subject) -> None:
        batch = list(subject.messages(subject.channel.batch))
        wrong = len(batch) // 2
        batch[wrong] = msgspec.structs.replace(batch[wrong], address="")
        outcomes = await subject.send(batch)
        assert not isinstance(outcomes[wrong], Sent | Delivered), "a message without an address cannot be sent"
        refused = [number for number, each in enumerate(outcomes) if not isinstance(each, Sent | Delivered)]
        assert refused == [wrong], f"the messages {refused} were refused, but only {wrong} is invalid"

    @pytest.mark.parametrize("fault", DOUBTFUL)
    @question
    async def test_an_invalid_response_is_never_a_success(self, subject: Subject, fault: Fault) -> None:
        outcomes = await self._send_with_fault(subject, fault)
        legal: tuple[type, ...] = (Unknown, Retryable)
        if self.status_is_enough and fault in ("html", "half"):
            legal = (*legal, Sent, Delivered)
        _only(outcomes, *legal)

    @question
    async def test_a_busy_provider_is_tried_again_after_its_delay(self, subject: Subject) -> None:
        outcomes = await self._send_with_fault(subject, "busy")
        _only(outcomes, Retryable)
        waits = [outcome.after or 0 for outcome in outcomes if isinstance(outcome, Retryable)]
        assert min(waits) >= RETRY_AFTER, f"the provider requires {RETRY_AFTER} s, the channel returns {min(waits)} s"

    @question
    async def test_a_broken_provider_is_tried_again(self, subject: Subject) -> None:
        outcomes = await self._send_with_fault(subject, "broken")
        _only(outcomes, Retryable, Unknown)

    @question
    async def test_refused_credentials_do_not_fail_the_message(self, subject: Subject) -> None:
        outcomes = await self._send_with_fault(subject, "denied")
        _only(outcomes, *self.denied)

    @question
    async def test_an_unreachable_provider_is_tried_again(self, subject: Subject) -> None:
        if not isinstance(subject.provider, Provider):
            pytest.skip("this provider cannot be stopped")
        await subject.provider.__aexit__(None, None, None)
        outcomes = await subject.send(subject.messages(1))
        _only(outcomes, Retryable)

    @question
    async def test_it_recovers_after_a_closed_connection(self, subject: Subject) -> None:
        if "close" in self.faults:
            await self._send_with_fault(subject, "close")
        subject.provider.fault = None
        (outcome,) = await subject.send(subject.messages(1))
        _only((outcome,), Sent, Delivered)

    @question
    async def test_every_attempt_of_a_message_has_the_same_key(self, subject: Subject) -> None:
        first, other = subject.messages(2)
        for message in (first, msgspec.structs.replace(first, attempt=2), other):
            await subject.send([message])
        keys = self.keys_sent(subject, [first, other])
        if keys:
            assert len(keys) == 3, "send a key with each message, or with none"  # noqa: PLR2004 - two tries and another
            assert keys[0] == keys[1], "the second attempt has another key"
            assert keys[2] != keys[0], "two messages have the same key"

    @question
    async def test_an_unauthenticated_callback_is_rejected(self, subject: Subject) -> None:
        for body in GARBAGE:
            for headers in ({}, {"content-type": "application/json"}, {"content-type": "text/plain; charset=x"}):
                with pytest.raises(RejectedCallback):
                    await subject.channel.read_callback(Callback(body=body, headers=headers), subject.exchange)

    async def _send_with_fault(self, subject: Subject, fault: Fault) -> Sequence[Outcome]:
        if fault not in self.faults:
            pytest.skip(f"this provider does not support the fault {fault}")
        subject.provider.fault = fault
        batch = subject.messages(min(subject.channel.batch, 3))
        if fault != "silence":
            return await subject.send(batch)
        # The short timeout is only for this fault: on a slow machine it would fail the other tests.
        usual, subject.exchange.timeout = subject.exchange.timeout, SHORT_TIMEOUT
        try:
            return await subject.send(batch)
        finally:
            subject.exchange.timeout = usual


def _only(outcomes: Sequence[Outcome], *legal: type) -> None:
    wrong = [each for each in outcomes if not isinstance(each, legal)]
    assert not wrong, f"{wrong[0]!r} where only {' or '.join(kind.__name__ for kind in legal)} is allowed"


def _texts(value: Any) -> Iterator[str]:
    """Yield settings that could be secrets; URLs of servers are not."""
    match value:
        case str() if len(value) >= SHORTEST_SECRET and not value.startswith(("http://", "https://")):
            yield value
        case dict():
            for each in value.values():
                yield from _texts(each)
        case list() | tuple():
            for each in value:
                yield from _texts(each)
