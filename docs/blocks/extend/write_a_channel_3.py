import asyncio
import os
from collections.abc import Sequence

import contract  # it looks at itself
from callbacks import app, check_callbacks

from sereno import Channel
from sereno.channels.contract import Exchange, Message
from sereno.channels.twilio import Twilio
from sereno.channels.outcome import Outcome, Sent, Unknown
from sereno.testing.twilio import TwilioProvider


class OtherSms(Channel):
    name = "sms"

    async def send(self, batch: Sequence[Message], exchange: Exchange) -> Sequence[Outcome]:
        assert exchange.account == {"from_number": "+37120000000", "api_key": "key"}
        return [Sent(f"other-{message.key}") for message in batch]


os.environ |= {"TWILIO_TOKEN": "token", "OTHER_SMS_KEY": "key"}
# the block of the page


async def main() -> None:
    await check_callbacks()
    account = app.channels.accounts["sms"]
    async with TwilioProvider() as twilio, Exchange(account) as exchange:
        twilio.account_sid, twilio.auth_token = account["first"]["account_sid"], account["first"]["auth_token"]
        account["first"]["url"] = twilio.url
        message = Message(delivery=1, key="one", address="+37120000001", title="Hello")
        (taken,) = await sms.send([message], exchange)
        assert [taken.provider_id] == list(twilio.sent)
        twilio.fault = "busy"
        assert await sms.send([message], exchange) == [Sent("other-one")]
        twilio.fault = "close"
        (unknown,) = await sms.send([message], exchange)
        assert isinstance(unknown, Unknown)


asyncio.run(main())
