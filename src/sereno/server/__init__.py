"""The HTTP server: the admin API and the dashboard, alone or mounted in an application of yours."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sereno.server.application import asgi

__all__ = ["asgi"]


def __getattr__(name: str) -> Any:
    # Imported when first used: the packages below are also imported where the `server` extra is not installed.
    if name != "asgi":
        raise AttributeError(f"module 'sereno.server' has no attribute {name!r}")
    from sereno.server.application import asgi  # noqa: PLC0415

    return asgi
