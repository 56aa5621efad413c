"""A background loop: an error does not end it, and its health is that of its last round."""

from sereno.telemetry.service import Service
from tests.facts import auntil


class Unsteady(Service):
    """Fails while it is told to."""

    fails = False

    async def run_once(self) -> float:
        if self.fails:
            raise ValueError("as told")
        return 0.01


async def test_a_service_is_healthy_while_its_last_round_succeeded() -> None:
    service = Unsteady("unsteady")
    assert not service.is_healthy
    service.start()
    await auntil(lambda: service.is_healthy)
    service.fails = True
    await auntil(lambda: not service.is_healthy)
    service.fails = False
    await auntil(lambda: service.is_healthy)
    await service.stop()
    assert not service.is_healthy
