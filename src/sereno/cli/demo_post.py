"""What the demo's restaurants tell people: of orders by push, of invoices by mail, of new dishes in the application."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, NamedTuple

from sereno.app import Sereno
from sereno.channels.contract import Chain
from sereno.cli.demo_tasks import RESTAURANTS
from sereno.domain.event import IN_APP, Content, Recipient
from sereno.notifications import Event

# Without them nothing can leave by these channels; the rest of the demo needs none of them.
PACKAGES = ("aiohttp", "aiosmtplib")
EXPO, EMAIL = "expo", "email"

GUESTS = 48
ORDERS = 60
# Longer than a receipt of the demo's Expo takes.
PATIENCE = "3s"

# Guests of whom something is to be seen: what they want, and whether they can be reached.
WANTS_NOTHING, ONLY_LARGE_ORDERS, ONLY_VEGETARIAN, WITHOUT_ADDRESS = 5, 7, 8, 9
OLD_PHONES = (11, 23, 35)
LOST_PHONE = 14
LARGE_ORDER = 40
# Of the owners, one with a mailbox that is gone, one whose server asks to come back, one who wants large amounts only.
GONE_MAILBOX, BUSY_MAILBOX, ONLY_LARGE_INVOICES = "brauhaus", "bistro", "mezze"
LARGE_INVOICE = 500

DISHES = (("osteria", "ribollita", True), ("izakaya", "yakitori", False), ("mezze", "fattoush", True))

# What each event is there to show, by its channel; the order is that of the table.
WORDS = {
    ("order.ready", EXPO): "push and receipt; some phones are gone",
    ("order.ready", EMAIL): "for those whom no push has reached",
    ("order.ready", IN_APP): "instead of push",
    ("invoice.due", EMAIL): "one mailbox is gone, one is busy",
    ("invoice.due", IN_APP): "instead of mail",
    ("menu.new", IN_APP): "to all who want it",
}


@dataclass
class Order:
    """A guest's, ready to be eaten."""

    number: int
    restaurant: str
    total: int


@dataclass
class Invoice:
    """For the owner of a restaurant."""

    number: int
    restaurant: str
    amount: int


@dataclass
class Dish:
    """New on a menu."""

    restaurant: str
    name: str
    vegetarian: bool


class Telling(NamedTuple):
    """One event that will happen. `to`: None for all who want to hear of it."""

    event: Event[Any]
    payload: Any
    subject: str
    to: str | None


def missing_packages() -> list[str]:
    """What has to be installed before a push or a mail can leave."""
    return [name for name in PACKAGES if find_spec(name) is None]


def guest(number: int) -> str:
    return f"guest:{number}"


def owner(restaurant: str) -> str:
    return f"owner:{restaurant}"


def token(number: int) -> str:
    """By which a guest's phone is pushed to."""
    return f"ExponentPushToken[phone-{number}]"


def mailbox(name: str) -> str:
    return f"{name}@example.org"


class Post:
    """The events of the chain, and those who hear of them."""

    def __init__(self, app: Sereno, chance: random.Random) -> None:
        self._app = app
        self._chance = chance
        # By name: where a channel is missing, people are told in the application.
        push = Chain([EXPO]).then(EMAIL, after=PATIENCE)
        self._ready = app.event("order.ready", Order, channels=[push], category="orders")
        self._due = app.event("invoice.due", Invoice, channels=[EMAIL], category="money")
        self._new = app.event("menu.new", Dish, channels=[IN_APP], category="news")
        self._give_words()

    def _give_words(self) -> None:
        @self._ready.template()
        def ready(order: Order, to: Recipient) -> Content:  # noqa: ARG001 - the same words for everybody
            return Content(f"Order {order.number} is ready", f"Come to the counter of the {order.restaurant}.")

        @self._due.template()
        def due(invoice: Invoice, to: Recipient) -> Content:
            return Content(f"Invoice {invoice.number} is due", f"Dear {to.key}, it is about {invoice.amount} EUR.")

        @self._new.template()
        def new(dish: Dish, to: Recipient) -> Content:  # noqa: ARG001 - see above
            return Content(f"New at the {dish.restaurant}: {dish.name}")

    async def introduce(self) -> int:
        """Write down who there is, how to reach them and what they want; answers how many they are."""
        people = self._app.recipients
        for number in range(1, GUESTS + 1):
            addresses = {EXPO: token(number), EMAIL: mailbox(f"guest-{number}")}
            await people.aupsert(guest(number), {} if number == WITHOUT_ADDRESS else addresses)
        for restaurant in RESTAURANTS:
            await people.aupsert(owner(restaurant), {EMAIL: mailbox(restaurant)})
        await people.aprefer(guest(WANTS_NOTHING), wanted=False)
        await people.aprefer(guest(ONLY_LARGE_ORDERS), category="orders", condition=_at_least("total", LARGE_ORDER))
        await people.aprefer(guest(ONLY_VEGETARIAN), category="news", condition={"vegetarian": True})
        await people.aprefer(owner(ONLY_LARGE_INVOICES), category="money", condition=_at_least("amount", LARGE_INVOICE))
        for restaurant in RESTAURANTS:
            await people.aprefer(owner(restaurant), category="news", wanted=False)
        return GUESTS + len(RESTAURANTS)

    def tellings(self) -> list[Telling]:
        """All that will happen, shuffled as life does it."""
        found = [self._order(number) for number in range(ORDERS)]
        found += [self._invoice(number) for number in range(2 * len(RESTAURANTS))]
        found += [Telling(self._new, Dish(*dish), dish[1], None) for dish in DISHES]
        self._chance.shuffle(found)
        return found

    def _order(self, number: int) -> Telling:
        order = Order(number, self._chance.choice(RESTAURANTS), self._chance.randrange(10, 60))
        return Telling(self._ready, order, f"order {number}", guest(number % GUESTS + 1))

    def _invoice(self, number: int) -> Telling:
        restaurant = RESTAURANTS[number % len(RESTAURANTS)]
        invoice = Invoice(number, restaurant, 100 + 50 * number)
        return Telling(self._due, invoice, f"invoice {number}", owner(restaurant))


async def tell(telling: Telling) -> None:
    await telling.event.anotify(telling.payload, subject=telling.subject, to=telling.to)


def _at_least(field: str, least: int) -> Mapping[str, Any]:
    return {field: {"min": least}}
