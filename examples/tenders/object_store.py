"""An object store on loopback: moto's server, which implements the S3 protocol, and a proxy in front of it."""

from collections.abc import Iterator
from contextlib import contextmanager

import aiohttp
from aiohttp import web
from yarl import URL

from sereno.testing.provider import Provider, Request

# Response headers that belong to one connection and are not forwarded.
HOP_BY_HOP = ("connection", "date", "server", "transfer-encoding")


class Store(Provider):
    """A proxy in front of an object store."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._upstream = url

    async def answer(self, request: Request) -> web.StreamResponse:
        headers = {name: value for name, value in request.headers.items() if name not in ("host", "content-length")}
        url = URL(f"{self._upstream}{request.path}", encoded=True)
        async with (
            aiohttp.ClientSession(auto_decompress=False) as session,
            session.request(request.method, url, headers=headers, data=request.body) as response,
        ):
            forwarded = {name: value for name, value in response.headers.items() if name.lower() not in HOP_BY_HOP}
            return web.Response(status=response.status, headers=forwarded, body=await response.read())


@contextmanager
def object_store(bucket: str) -> Iterator[dict[str, str]]:
    """Run S3 on loopback; yield the environment variables of a client."""
    import boto3  # noqa: PLC0415 - installed with the test packages only
    from moto.server import ThreadedMotoServer  # noqa: PLC0415 - see above

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    environment = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "any-key",
        "AWS_SECRET_ACCESS_KEY": "any-secret",
    }
    client = boto3.client(
        "s3",
        endpoint_url=environment["AWS_ENDPOINT_URL"],
        region_name="us-east-1",
        aws_access_key_id="any-key",
        aws_secret_access_key="any-secret",  # noqa: S106 - moto accepts any
    )
    client.create_bucket(Bucket=bucket)
    try:
        yield environment
    finally:
        server.stop()
