"""Microsoft Teams through workflows: the card that is sent, what each refusal means, and which URLs are addresses."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from sereno.channels.contract import Exchange, Message
from sereno.channels.outcome import Failed, Invalid, Outcome, Retryable, Sent, Unknown
from sereno.channels.teams import LARGEST, Teams
from sereno.errors import InvalidAddress
from sereno.testing.chats import TeamsProvider
from sereno.testing.provider import RETRY_AFTER, Request

QUERY = "api-version=1&sp=%2Ftriggers%2Fmanual%2Frun&sv=1.0&sig=secret-Kj7_x"
WORKFLOW = "workflows/0a0a0a0a0a/triggers/manual/paths/invoke"
DIRECT = "powerautomate/automations/direct"
HOST = "https://default0a0a.0a.environment.api.powerplatform.com"


@pytest.fixture
async def provider() -> AsyncIterator[TeamsProvider]:
    async with TeamsProvider() as provider:
        yield provider


async def send(provider: TeamsProvider, **changed: Any) -> Outcome:
    message = Message(**{"delivery": 1, "key": "k1", "address": provider.address, "body": "Good morning", **changed})
    async with Exchange({"url": provider.url}) as exchange:
        (outcome,) = await Teams().send([message], exchange)
    return outcome


async def test_a_message_is_a_card_without_markdown(provider: TeamsProvider) -> None:
    outcome = await send(provider, title="Order *7*", body="[Pay](https://evil.example)\n\n<at>all</at>")
    assert outcome == Sent("085800000000000000000000000001CU21")
    (card,) = provider.sent
    assert (card["type"], card["version"]) == ("AdaptiveCard", "1.4")
    assert {block["type"] for block in card["body"]} == {"RichTextBlock"}
    runs = [run for block in card["body"] for run in block["inlines"]]
    assert [run["text"] for run in runs] == ["Order *7*", "[Pay](https://evil.example)", "<at>all</at>"]
    assert runs[0]["weight"] == "Bolder"


async def test_a_card_of_the_template_replaces_the_text(provider: TeamsProvider) -> None:
    card = {"type": "AdaptiveCard", "version": "1.4", "body": [{"type": "TextBlock", "text": "**bold**"}]}
    assert isinstance(await send(provider, options={"card": card}), Sent)
    assert provider.sent == [card]


UNFIT: list[tuple[dict[str, Any], str]] = [
    ({"body": " \n"}, "empty"),
    ({"options": {"card": {"type": "AdaptiveCard", "body": []}}}, "empty"),
    ({"options": {"card": "x"}}, "malformed"),
    ({"options": {"card": {"body": [{1, 2}, object()]}}}, "malformed"),
    ({"body": "half a pair: \ud800"}, "malformed"),
    ({"body": "x" * LARGEST}, "too_large"),
]


async def test_a_message_that_the_workflow_could_not_post_is_not_sent(
    provider: TeamsProvider, subtests: pytest.Subtests
) -> None:
    for wrong, code in UNFIT:
        with subtests.test(wrong=str(wrong)[:60]):
            outcome = await send(provider, **wrong)
            assert isinstance(outcome, Failed)
            assert outcome.code == code
    assert provider.log == []


REFUSALS: list[tuple[int, str, str, type[Outcome]]] = [
    (404, "WorkflowNotFound", "not here", Invalid),
    (401, "DirectApiAuthorizationRequired", "a signature", Invalid),
    (403, "AuthorizationFailed", "wrong", Invalid),
    (400, "WorkflowTriggerIsNotEnabled", "the workflow's state is 'Deleted'.", Invalid),
    (400, "WorkflowTriggerIsNotEnabled", "the workflow's state is 'Suspended'.", Failed),
    (400, "MissingApiVersionParameter", "api-version", Failed),
    (401, "NewCode", "who are you", Retryable),
    (403, "", "who are you", Retryable),
    (429, "TooManyRequests", "later", Retryable),
    (429, "NewCode", "later", Retryable),
    (502, "NoResponse", "the server did not respond", Retryable),
]


async def test_each_refusal_has_an_outcome(provider: TeamsProvider, subtests: pytest.Subtests) -> None:
    for status, code, text, kind in REFUSALS:
        with subtests.test(status=status, code=code, text=text):
            provider.refuses = status, code, text
            outcome = await send(provider)
            assert type(outcome) is kind
            assert status != 429 or (isinstance(outcome, Retryable) and outcome.after == RETRY_AFTER)


async def test_a_changed_signature_is_invalid_and_not_shown(provider: TeamsProvider) -> None:
    outcome = await send(provider, address=provider.address + "x")
    assert isinstance(outcome, Invalid)
    outcome = await send(provider, address=provider.address.replace("0a0a0a", "0b0b0b"))
    assert isinstance(outcome, Invalid)
    assert provider.signature not in repr(outcome)


class OddTeams(TeamsProvider):
    """Returns one response to every request."""

    status, body = 200, b""

    async def answer(self, request: Request) -> web.StreamResponse:
        return web.Response(status=self.status, body=self.body or request.path.encode())


async def test_odd_responses_stop_nothing_and_show_no_secret(subtests: pytest.Subtests) -> None:
    async with OddTeams() as provider:
        for status, body, kind in [
            (200, b"", Unknown),
            (204, b"", Unknown),
            (302, b"", Failed),
            (401, b"", Retryable),
            (400, b'{"error": ["x"]}', Failed),
            (400, b'{"error": {"code": {"a": 1}, "message": 5}}', Failed),
            (404, b"[" * 100_000, Failed),
            (500, b"\xff", Retryable),
        ]:
            with subtests.test(status=status, body=body[:40]):
                provider.status, provider.body = status, body
                outcome = await send(provider)
                assert type(outcome) is kind
                assert provider.signature not in repr(outcome)


def test_webhooks_of_workflows_are_addresses(subtests: pytest.Subtests) -> None:
    for address in [
        f"{HOST}:443/{DIRECT}/{WORKFLOW}?{QUERY}",
        f"{HOST}/{DIRECT}/{WORKFLOW}/?{QUERY}",
        f"{HOST}:443/{DIRECT}/cu/21/{WORKFLOW}?{QUERY}",
        f"https://prod-05.westeurope.logic.azure.com:443/{WORKFLOW}?api-version=2016-06-01&{QUERY}",
    ]:
        with subtests.test(address=address):
            assert Teams().check_address(f" {address} ") == address


INVALID_ADDRESSES = [
    "",
    f"http://prod-05.westeurope.logic.azure.com/{WORKFLOW}?{QUERY}",
    f"https://logic.azure.com.evil.example/{WORKFLOW}?{QUERY}",
    f"https://evil.example/{WORKFLOW}?{QUERY}",
    f"https://evil-logic.azure.com/{WORKFLOW}?{QUERY}",
    f"https://x.logic.azure.com@evil.example/{WORKFLOW}?{QUERY}",
    f"https://x.logic.azure.com:8443/{WORKFLOW}?{QUERY}",
    f"https://x.logic.azure.com/{WORKFLOW}",
    f"https://x.logic.azure.com/{WORKFLOW}?api-version=1",
    f"https://x.logic.azure.com/{WORKFLOW}?{QUERY}#x",
    f"https://x.logic.azure.com/../{WORKFLOW}?{QUERY}",
    f"https://x.logic.azure.com/{WORKFLOW}/../../x?{QUERY}",
    f"https://x.logic.azure.com/{WORKFLOW}?{QUERY}\r\nX-Evil: 1",
    "https://example.webhook.office.com/webhookb2/secret-Kj7_x/IncomingWebhook/x/y",
]


def test_other_urls_are_invalid(subtests: pytest.Subtests) -> None:
    for address in INVALID_ADDRESSES:
        with subtests.test(address=address):
            with pytest.raises(InvalidAddress) as raised:
                Teams().check_address(address)
            assert "secret" not in str(raised.value)
