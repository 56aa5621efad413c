import asyncio
import os
from dataclasses import dataclass

from sereno import Sereno
from sereno.channels.contract import Callback
from sereno.channels.email import Email
from sereno.testing.smtp import MailServer

os.environ["BOUNCE_SECRET"] = "secret of the gateway"
app = Sereno()

REPORT = """\
Content-Type: multipart/report; report-type=delivery-status; boundary="b1"

--b1
Content-Type: message/delivery-status

Reporting-MTA: dns; mx.example.com

Action: failed
Status: 5.1.1

--b1--
"""


@dataclass
class OrderReady:
    number: int


async def main() -> None:
    # the block of the page
    order_ready = app.event("order.ready", OrderReady, channels=[email])
    async with MailServer() as server:
        app.channels.add(email, host=server.host, port=server.port, tls="none")
        await app.recipients.aupsert("ada", {"email": "ada@example.com"})
        async with app.working():
            await order_ready.anotify(OrderReady(7), subject="7", to="ada")
            while (await order_ready.astatus("7")).deliveries != {"sent": 1}:
                await asyncio.sleep(0.05)
            (mail,) = server.mails
            for recipient, state in [("bounces@mail.example.org", "sent"), (mail.sender, "invalid")]:
                headers = {"x-sereno-secret": os.environ["BOUNCE_SECRET"], "x-sereno-recipient": recipient}
                await app.notifications.callback("email", Callback(body=REPORT.encode(), headers=headers))
                assert (await order_ready.astatus("7")).deliveries == {state: 1}
    await app.aclose()


asyncio.run(main())
