"""How far the schema is. The server's login may not change it, and shall not: `sereno migrate` does."""

from sereno.monitoring import migrations
from sereno.monitoring.migrations import SchemaStatus
from sereno.server.api.router import Router
from sereno.server.shared.context import ServerContext


def rooms(house: ServerContext) -> Router:
    """`/migrations`."""
    door = Router(house, "migrations")

    @door.at("GET", "/migrations", role="viewer")
    async def show_migrations() -> SchemaStatus:
        """Which migrations are applied and which are not. To apply them is for the owner: `sereno migrate`."""
        return await house.read(migrations.status(house.settings.schema))

    return door
