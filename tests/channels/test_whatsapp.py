"""WhatsApp through the Cloud API: texts and templates, the meaning of each code, and signed statuses."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from sereno.channels.contract import Exchange, Message
from sereno.channels.outcome import Down, Failed, Invalid, Outcome, Retryable, Sent
from sereno.channels.whatsapp import WhatsApp, signature
from sereno.errors import RejectedCallback
from sereno.testing.whatsapp import WhatsAppProvider

PHONE = "+5511987654321"
WAMID = "wamid.HBgLMTY1MDUwNzY1MjAVAgARGBI5QTNDQTVCM0Q0Q0Q2RTY3RTcA"


@pytest.fixture
async def provider() -> AsyncIterator[WhatsAppProvider]:
    async with WhatsAppProvider() as provider:
        yield provider


async def send(provider: WhatsAppProvider, *, account: dict[str, str] | None = None, **changed: Any) -> Outcome:
    message = Message(**{"delivery": 1, "key": "k1", "address": PHONE, "body": "Bom dia", **changed})
    async with Exchange({**provider.account, **(account or {})}) as exchange:
        (outcome,) = await WhatsApp().send([message], exchange)
    return outcome


async def test_an_accepted_text_is_sent_with_its_id(provider: WhatsAppProvider) -> None:
    outcome = await send(provider, account={"version": "v21.0"})
    ((wamid, content),) = provider.sent.items()
    assert outcome == Sent(wamid)
    assert wamid.startswith("wamid.")
    assert provider.log[0].path == f"/v21.0/{provider.phone_number_id}/messages"
    assert content == {
        "messaging_product": "whatsapp",
        "recipient_type": "individual",
        "to": PHONE,
        "type": "text",
        "text": {"preview_url": False, "body": "Bom dia"},
    }


async def test_a_template_is_sent_in_place_of_the_text(subtests: pytest.Subtests) -> None:
    for language in ["pt_BR", {"code": "pt_BR"}]:
        with subtests.test(language=language):
            async with WhatsAppProvider() as provider:
                components = [{"type": "body", "parameters": [{"type": "text", "text": "Ana"}]}]
                template = {"name": "welcome", "language": language, "components": components}
                assert isinstance(await send(provider, body="", options={"template": template}), Sent)
                (content,) = provider.sent.values()
                assert content["type"] == "template"
                assert content["template"] == {
                    "name": "welcome",
                    "language": {"code": "pt_BR"},
                    "components": components,
                }
                assert "text" not in content


async def test_an_invalid_template_fails(provider: WhatsAppProvider, subtests: pytest.Subtests) -> None:
    for template in [None, "welcome", {}, {"name": "welcome"}, {"name": 1, "language": "pt"}]:
        with subtests.test(template=template):
            outcome = await send(provider, options={"template": template})
            assert isinstance(outcome, Failed)
            assert outcome.code == "bad_template"
            assert provider.log == []


async def test_a_text_that_is_too_long_is_not_sent(provider: WhatsAppProvider) -> None:
    outcome = await send(provider, body="x" * 4097)
    assert isinstance(outcome, Failed)
    assert outcome.code == "too_long"
    assert provider.log == []
    assert isinstance(await send(provider, body="x" * 4096), Sent)


OUTCOMES: list[tuple[int, type[Outcome]]] = (
    [(code, Down) for code in (0, 3, 10, 190, 200, 299, 368, 131005, 131031, 131042, 131045, 133010)]
    + [(code, Invalid) for code in (131021, 131026)]
    + [(code, Retryable) for code in (2, 4, 80007, 130429, 131000, 131016, 131048, 131056, 131057)]
    + [(code, Failed) for code in (100, 130472, 131008, 131009, 131030, 131047, 131049, 131051, 132000, 132001)]
)


@pytest.mark.slow
async def test_each_code_has_an_outcome(provider: WhatsAppProvider, subtests: pytest.Subtests) -> None:
    for code, kind in OUTCOMES:
        with subtests.test(code=code):
            provider.refuses[PHONE] = code
            outcome = await send(provider)
            assert type(outcome) is kind
            assert getattr(outcome, "code", None) == str(code)
            assert getattr(outcome, "message", None) == f"(#{code}) Refused: for a reason"


async def test_a_refused_token_stops_the_channel_and_is_not_repeated(provider: WhatsAppProvider) -> None:
    outcome = await send(provider, account={"access_token": "EAAwrongwrong"})
    assert outcome == Down("190", "Malformed access token [hidden]")


async def test_a_missing_sender_stops_the_channel(provider: WhatsAppProvider) -> None:
    outcome = await send(provider, account={"phone_number_id": "404"})
    assert isinstance(outcome, Down)
    assert outcome.code == "100"


def test_the_signature_is_an_hmac_of_the_body() -> None:
    """Case 2 of RFC 4231."""
    mac = b"5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
    assert signature("Jefe", b"what do ya want for nothing?") == b"sha256=" + mac


STATUSES: list[tuple[str, int | None, str | None]] = [
    ("sent", None, None),
    ("accepted", None, None),
    ("delivered", None, "delivered"),
    ("read", None, "read"),
    ("failed", None, "failed"),
    ("failed", 131047, "failed"),
    ("failed", 131026, "invalid"),
    ("failed", 131056, "retry"),
    ("failed", 131031, "down"),
]


async def test_a_status_becomes_a_receipt(provider: WhatsAppProvider, subtests: pytest.Subtests) -> None:
    for status, code, outcome in STATUSES:
        with subtests.test(status=status, code=code):
            errors = [] if code is None else [{"code": code, "title": "No", "error_data": {"details": "because"}}]
            callback = provider.callback({"id": WAMID, "status": status, "errors": errors})
            receipts = WhatsApp().webhook(callback, provider.account)
            assert [(receipt.provider_id, receipt.outcome, receipt.id) for receipt in receipts] == (
                [] if outcome is None else [(WAMID, outcome, f"{WAMID}.{status}")]
            )
            if code is not None:
                assert [(receipt.code, receipt.message) for receipt in receipts] == [(str(code), "No: because")]


async def test_an_invalid_status_does_not_affect_the_others(provider: WhatsAppProvider) -> None:
    odd: list[dict[str, Any]] = [
        {},
        {"id": 5, "status": "read"},
        {"id": "a b", "status": "read"},
        {"id": WAMID, "status": ["read"]},
        {"id": WAMID, "status": "failed", "errors": {"code": 1}},
        {"id": WAMID, "status": "failed", "errors": [7, {"code": "x", "error_data": 3}]},
    ]
    callback = provider.callback(*odd, {"id": "wamid.last", "status": "delivered"})
    outcomes = [(receipt.provider_id, receipt.outcome) for receipt in WhatsApp().webhook(callback, provider.account)]
    assert outcomes == [(WAMID, "failed"), (WAMID, "failed"), ("wamid.last", "delivered")]


async def test_a_callback_without_statuses_has_no_receipts(
    provider: WhatsAppProvider, subtests: pytest.Subtests
) -> None:
    for body in [b"[]", b"{}", b'{"entry": 4}', b'{"entry": [{"changes": [{"value": []}]}]}']:
        with subtests.test(body=body):
            assert list(WhatsApp().webhook(provider.signed(body), provider.account)) == []


async def test_a_signed_callback_that_is_not_json_is_rejected(
    provider: WhatsAppProvider, subtests: pytest.Subtests
) -> None:
    for body in [b"", b"<html>", b"\xff", b"[" * 100_000]:
        with subtests.test(body=body[:10]), pytest.raises(RejectedCallback):
            WhatsApp().webhook(provider.signed(body), provider.account)


async def test_a_callback_that_meta_did_not_sign_is_rejected(provider: WhatsAppProvider) -> None:
    good = provider.callback({"id": WAMID, "status": "delivered"})
    unprefixed = good.headers["x-hub-signature-256"].removeprefix("sha256=")
    forged = [
        msgspec.structs.replace(good, headers={}),
        msgspec.structs.replace(good, headers={"x-hub-signature-256": unprefixed}),
        msgspec.structs.replace(good, headers={"x-hub-signature-256": "sha256=é\ud800"}),
        msgspec.structs.replace(good, body=good.body.replace(b"delivered", b"read")),
    ]
    for callback in forged:
        with pytest.raises(RejectedCallback):
            WhatsApp().webhook(callback, provider.account)


async def test_without_an_app_secret_every_callback_is_rejected(provider: WhatsAppProvider) -> None:
    provider.app_secret = ""
    with pytest.raises(RejectedCallback, match="app_secret"):
        WhatsApp().webhook(provider.callback({"id": WAMID, "status": "read"}), provider.account)
