"""The call of a channel, which may be third-party code, and its span."""

import logging
from collections.abc import Sequence

from sereno.channels.contract import Channel, Exchange, Message
from sereno.channels.outcome import Delivered, Outcome, Sent, Unknown
from sereno.error_text import class_name, one_line
from sereno.telemetry import tracing
from sereno.telemetry.log_events import emit

# Characters of a code in a span.
MOST_CODE = 100


async def call_channel(
    channel: Channel, messages: Sequence[Message], exchange: Exchange, traces: Sequence[str]
) -> Sequence[Outcome]:
    """Send the messages in a span of the traces of their events. Return one outcome per message."""
    outcomes: Sequence[Outcome] | None = None
    try:
        with tracing.delivering(channel.name, traces, len(messages)) as ended:
            outcomes = await _outcomes_of(channel, messages, exchange)
            ended([one_line(each.code)[:MOST_CODE] for each in outcomes if not isinstance(each, Sent | Delivered)])
    except Exception as error:  # noqa: BLE001 - of the tracing: messages whose outcomes are lost are sent again
        emit(
            logging.WARNING,
            "delivery.untraced",
            f"channel {channel.name}: the span of a batch failed: {class_name(error)}",
            channel=channel.name,
        )
    return outcomes if outcomes is not None else await _outcomes_of(channel, messages, exchange)


async def _outcomes_of(channel: Channel, messages: Sequence[Message], exchange: Exchange) -> Sequence[Outcome]:
    """Call the channel; if it breaks its contract, every message may have been sent."""
    try:
        outcomes = list(await channel.send(messages, exchange))
    except Exception as error:  # noqa: BLE001 - a channel may be third-party code
        return [Unknown("channel_error", type(error).__name__)] * len(messages)
    if len(outcomes) != len(messages):
        wrong = f"{len(outcomes)} outcomes for {len(messages)} messages"
        return [Unknown("channel_error", wrong)] * len(messages)
    return [
        outcome if isinstance(outcome, Outcome) else Unknown("channel_error", type(outcome).__name__)
        for outcome in outcomes
    ]
