"""How far the schema is. The server's login may not change it, and shall not: `sereno migrate` does."""

from sereno.monitoring import migrations
from sereno.monitoring.migrations import SchemaStatus
from sereno.server.api.router import Router
from sereno.server.shared.context import ServerContext


def routes(context: ServerContext) -> Router:
    """`/migrations`."""
    router = Router(context, "migrations")

    @router.operation("GET", "/migrations", role="viewer")
    async def show_migrations() -> SchemaStatus:
        """Which migrations are applied and which are not. To apply them is for the owner: `sereno migrate`."""
        return await context.read(migrations.status(context.settings.schema))

    return router
