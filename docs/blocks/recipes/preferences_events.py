from dataclasses import dataclass

from sereno import Digest, Throttle
from sereno.channels.email import Email
from sereno.channels.expo import Expo
from sereno.channels.twilio import Twilio
from tenders import app

expo, sms, email = Expo(), Twilio(), Email(sender="Shop <shop@example.org>")


@dataclass
class Order:
    number: int


@dataclass
class Comment:
    thread: str
    text: str


Alarm = Letter = Price = Order

# the block of the page
