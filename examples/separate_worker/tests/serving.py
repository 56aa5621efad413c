"""Real HTTP against the API in the process of the test."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import uvicorn
from fastapi import FastAPI

# Seconds.
PATIENCE = 60


@asynccontextmanager
async def served(api: FastAPI) -> AsyncIterator[aiohttp.ClientSession]:
    """Serve the API on a free port of loopback, without its lifespan; the session has its address as base."""
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(api, lifespan="off", log_config=None, timeout_graceful_shutdown=1))
    running = asyncio.create_task(server.serve(sockets=[listening]))
    host, port = listening.getsockname()
    timeout = aiohttp.ClientTimeout(total=PATIENCE)
    try:
        # Connections wait in the socket until the server accepts them.
        async with aiohttp.ClientSession(f"http://{host}:{port}", timeout=timeout) as session:
            yield session
    finally:
        server.should_exit = True
        await running
        listening.close()
