"""An asyncio task that a handler starts cannot end the event loop of the worker."""

import asyncio
import gc
import signal
from typing import Any

import pytest
import uvloop

from sereno.worker.event_loop import run_loop

LOOPS = {"standard": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


async def exit_with(error: type[BaseException]) -> None:
    await asyncio.sleep(0)
    raise error


@pytest.fixture(autouse=True)
def signal_handlers() -> Any:
    """Install signal handlers, as a worker does when it starts."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.slow
@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_only_the_awaiting_handler_receives_the_exit_and_others_continue(loop: str, error: type[BaseException]) -> None:
    ended: list[str] = []

    async def neighbour(number: int) -> None:
        for _ in range(20):
            await asyncio.sleep(0)
        ended.append(f"neighbour {number}")

    async def handler() -> None:
        try:
            await asyncio.create_task(exit_with(error))
        except error:
            ended.append("handler")

    async def group() -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(exit_with(error))
        except error:
            ended.append("group")

    async def main() -> None:
        others = [asyncio.create_task(neighbour(number)) for number in range(50)]
        forgotten = [asyncio.create_task(exit_with(error)) for _ in range(3)]
        await asyncio.gather(asyncio.create_task(handler()), asyncio.create_task(group()), *others)
        await asyncio.wait(forgotten)
        assert [type(task.exception()) for task in forgotten] == [error] * 3

    run_loop(main(), LOOPS[loop])
    assert sorted(ended) == sorted(["handler", "group", *(f"neighbour {number}" for number in range(50))])
    gc.collect()


@pytest.mark.parametrize("loop", LOOPS)
def test_system_exit_of_the_main_coroutine_ends_the_loop(loop: str) -> None:
    with pytest.raises(SystemExit):
        run_loop(exit_with(SystemExit), LOOPS[loop])


def test_ctrl_c_ends_the_loop_before_signal_handlers_are_installed() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)

    async def main() -> None:
        asyncio.get_running_loop().call_soon(signal.raise_signal, signal.SIGINT)
        await asyncio.sleep(60)

    with pytest.raises(KeyboardInterrupt):
        run_loop(main())
