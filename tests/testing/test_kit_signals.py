"""The test kit with signals: what was sent, which job waits for it, and assertions that can fail."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from sereno import Context, Sereno
from sereno.testing.kit import Kit

MakeKit = Callable[[Sereno], Kit]


@dataclass
class Payment:
    amount: int


@pytest.fixture
def app(database_url: str) -> Iterator[Sereno]:
    made = Sereno(database_url)
    yield made
    made.close()


def test_sent_signals_and_waiting_jobs_are_found(app: Sereno, sereno_kit: MakeKit) -> None:
    @app.task
    async def order(ctx: Context, number: int) -> int:
        return (await ctx.wait_for(f"paid:{number}", type=Payment)).amount

    kit = sereno_kit(app)
    job = order.enqueue(42)
    kit.assert_not_signalled("paid:42")
    with pytest.raises(AssertionError, match=f"job {job.id} waits for no signal, not for paid:42"):
        kit.assert_waiting_for(job, "paid:42")
    kit.drain()
    kit.assert_waiting_for(job, "paid:42")
    with pytest.raises(AssertionError, match="waits for the signal paid:42, not for paid:43"):
        kit.assert_waiting_for(job.id, "paid:43")

    app.signal("paid:42", Payment(7))
    kit.drain()
    assert job.result("60s") == 7
    assert kit.assert_signalled("paid:42", Payment(7)).value == {"amount": 7}
    with pytest.raises(AssertionError, match="waits for no signal"):
        kit.assert_waiting_for(job, "paid:42")


@pytest.mark.slow
def test_the_assertions_about_signals_can_fail(app: Sereno, sereno_kit: MakeKit) -> None:
    kit = sereno_kit(app)
    with pytest.raises(AssertionError, match="the signal paid:42 was not sent; signals: none"):
        kit.assert_signalled("paid:42")
    app.signal("paid:42", {"amount": 7}, tenant="r42")
    app.signal("paid:42", {"amount": 8})
    assert kit.assert_signalled("paid:42").value == {"amount": 8}
    assert kit.assert_signalled("paid:42", {"amount": 7}).tenant == "r42"
    with pytest.raises(AssertionError, match=r"was not sent with \{'amount': 8\}; signals: paid:42: \{'amount': 7\}$"):
        kit.assert_signalled("paid:42", {"amount": 8}, tenant="r42")
    with pytest.raises(AssertionError, match="the signal paid:42 was sent: "):
        kit.assert_not_signalled("paid:42")
    kit.assert_not_signalled("paid:42", tenant="r43")
