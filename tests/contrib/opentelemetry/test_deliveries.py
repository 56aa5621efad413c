"""Spans of events and of their deliveries: one trace from the notification to the request at the provider."""

import base64
import socket
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased
from opentelemetry.trace import Tracer

from sereno import Channel, Sereno, in_app
from sereno.channels.contract import Exchange, Message
from sereno.channels.outcome import Failed, Outcome, Sent
from sereno.channels.telegram import Telegram
from sereno.channels.webhook import Webhook
from sereno.contrib.opentelemetry import instrument, uninstrument
from sereno.contrib.opentelemetry.propagation import MOST_LINKS, named_spans
from sereno.notifications.deliveries.channel_call import call_channel
from sereno.testing.chats import TelegramProvider
from sereno.testing.webhook import WebhookReceiver
from tests.contrib.opentelemetry.conftest import MakeTracer, only
from tests.contrib.opentelemetry.otlp_receiver import OtlpReceiver, values
from tests.facts import auntil, one
from tests.notifications.conftest import Pager, Tender

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
UNSAMPLED = PARENT.removesuffix("1") + "0"
OTHER = "00-11111111111111111111111111111111-2222222222222222-01"


async def decided(app: Sereno, connection: psycopg.Connection, count: int) -> None:
    """Work until `count` deliveries have ended."""
    ended = "select count(*) from sereno.deliveries where state not in ('pending', 'sending')"
    async with app.working():
        await auntil(lambda: one(connection, ended) == count)


async def test_an_event_is_one_trace_to_its_deliveries(
    app: Sereno,
    connection: psycopg.Connection,
    receiver: OtlpReceiver,
    tracer: Tracer,
) -> None:
    published = app.event("tender.published", Tender, channels=[Pager(), in_app])
    await app.recipients.aupsert("ada", {"pager": "a1"})
    with tracer.start_as_current_span("request"):
        await published.anotify(Tender("T1"), to="ada")
    await decided(app, connection, 2)
    request, notified, paged, put = (
        only(receiver.named(name)) for name in ("request", "notify tender.published", "send pager", "send in_app")
    )
    fanned_out = only(receiver.named("process sereno.fan_out"))
    assert {span.trace_id for span in (notified, fanned_out, paged, put)} == {request.trace_id}
    assert (notified.parent_span_id, notified.kind) == (request.span_id, Span.SPAN_KIND_PRODUCER)
    assert {span.parent_span_id for span in (fanned_out, paged, put)} == {notified.span_id}
    assert values(notified) == {
        "messaging.system": "sereno",
        "messaging.operation.name": "notify",
        "messaging.operation.type": "send",
        "messaging.destination.name": "tender.published",
    }
    assert paged.kind == Span.SPAN_KIND_CLIENT
    assert values(paged) == {
        "messaging.system": "sereno",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "pager",
    }
    # The jobs that send are shared by all events, and belong to no trace.
    assert receiver.named("process sereno.deliver") == []


async def call(
    channel: Channel, account: Mapping[str, Any], traces: Sequence[str], *messages: Message
) -> list[Outcome]:
    async with Exchange(account, private=True) as exchange:
        return list(await call_channel(channel, messages, exchange, traces))


def message(address: str, number: int = 1, **fields: Any) -> Message:
    return Message(delivery=number, key=f"k{number}", address=address, body="Good morning", **fields)


async def test_a_batch_of_several_events_links_to_each_of_them(
    receiver: OtlpReceiver, tracer: Tracer, subtests: pytest.Subtests
) -> None:
    for refused, status in [
        ((), Status.STATUS_CODE_UNSET),
        (("a1",), Status.STATUS_CODE_UNSET),
        (("a1", "a2"), Status.STATUS_CODE_ERROR),
    ]:
        with subtests.test(refused=refused):
            receiver.spans.clear()
            pager = Pager()
            pager.outcomes = {address: Failed("too_large", "a secret") for address in refused}
            await call(pager, {}, [PARENT, OTHER, UNSAMPLED, "order-7"], message("a1"), message("a2", 2))
            span = only(receiver.named("send pager"))
            assert span.parent_span_id == b""
            assert [link.span_id.hex() for link in span.links] == ["00f067aa0ba902b7", "2222222222222222"]
            assert span.status.code == status
            found = values(span)
            assert found["messaging.batch.message_count"] == 2
            assert found.get("sereno.refused", 0) == len(refused)
            assert found.get("error.type") == ("too_large" if refused else None)
            assert b"a secret" not in span.SerializeToString()


def test_a_span_links_to_a_bounded_number_of_spans() -> None:
    traces = [f"00-{number + 1:032x}-{number + 1:016x}-0{number % 2}" for number in range(3 * MOST_LINKS)]
    assert len(named_spans(traces * 2)) == MOST_LINKS
    sampled = named_spans(traces, sampled=True)
    assert len(sampled) == MOST_LINKS
    assert all(span.trace_flags.sampled for span in sampled)


async def test_a_request_to_a_provider_is_a_span_without_secrets(receiver: OtlpReceiver, tracer: Tracer) -> None:
    async with TelegramProvider() as provider:
        await call(Telegram(), provider.account, [PARENT], message("8421"))
        server = urlsplit(provider.account["url"])
    sent, request = only(receiver.named("send telegram")), only(receiver.named("POST"))
    assert f"00-{sent.trace_id.hex()}-{sent.parent_span_id.hex()}-01" == PARENT
    assert (request.trace_id, request.parent_span_id) == (sent.trace_id, sent.span_id)
    assert request.kind == Span.SPAN_KIND_CLIENT
    assert values(request) == {
        "http.request.method": "POST",
        "server.address": server.hostname,
        "server.port": server.port,
        "http.response.status_code": 200,
    }
    assert provider.account["bot_token"].encode() not in request.SerializeToString()


async def test_the_span_of_a_webhook_has_its_status(
    receiver: OtlpReceiver, tracer: Tracer, subtests: pytest.Subtests
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    secret = "whsec_" + base64.b64encode(b"n" * 32).decode()
    async with WebhookReceiver([secret]) as server:
        for url, secrets, status, error in [
            (f"{server.url}/private/path", [secret], 204, None),
            (server.url, ["whsec_" + base64.b64encode(b"o" * 32).decode()], 401, "401"),
            (f"http://127.0.0.1:{port}/private/path", [secret], None, "unreachable"),
        ]:
            with subtests.test(url=url, status=status):
                receiver.spans.clear()
                await call(Webhook(), {}, [PARENT], message(url, keys={"secrets": secrets}))
                request = only(receiver.named("POST"))
                found = values(request)
                assert (found.get("http.response.status_code"), found.get("error.type")) == (status, error)
                assert (request.status.code == Status.STATUS_CODE_ERROR) == (error is not None)
                assert b"private" not in request.SerializeToString()


async def test_an_event_that_is_not_sampled_has_no_span(receiver: OtlpReceiver, sampled_by: MakeTracer) -> None:
    sampled_by(ParentBased(ALWAYS_ON))
    async with TelegramProvider() as provider:
        await call(Telegram(), provider.account, [UNSAMPLED], message("8421"))
        await call(Telegram(), provider.account, [], message("8421", 2))
    assert len(provider.sent) == 2
    assert receiver.spans == []


class Broken(SpanProcessor):
    """Fails with every span."""

    def __init__(self, moment: str) -> None:
        self._moment = moment

    def on_start(self, *_: object, **__: object) -> None:
        if self._moment == "start":
            raise OSError("no tracing today")

    def on_end(self, *_: object) -> None:
        if self._moment == "end":
            raise OSError("no tracing today")


async def test_broken_tracing_loses_no_outcome(caplog: pytest.LogCaptureFixture, subtests: pytest.Subtests) -> None:
    """Without its outcome, a message would be sent again."""
    for moment in ("start", "end"):
        with subtests.test(moment=moment):
            provider, pager = TracerProvider(), Pager()
            provider.add_span_processor(Broken(moment))
            instrument(provider)
            try:
                assert await call(pager, {}, [PARENT], message("a1")) == [Sent("p1")]
            finally:
                uninstrument()
            assert len(pager.sent) == 1
            assert [record.event for record in caplog.records] == ["delivery.untraced"]  # type: ignore[attr-defined]  # an extra
            caplog.clear()
