"""The state of the schema. The server's database role cannot change it: `sereno migrate` does."""

from sereno.monitoring import migrations
from sereno.monitoring.migrations import SchemaStatus
from sereno.server.api.router import Router
from sereno.server.shared.context import ServerContext


def routes(context: ServerContext) -> Router:
    """`/migrations`."""
    router = Router(context, "migrations")

    @router.operation("GET", "/migrations", role="viewer")
    async def show_migrations() -> SchemaStatus:
        """Applied and pending migrations. The owner of the schema applies them: `sereno migrate`."""
        return await context.read(migrations.status(context.settings.schema))

    return router
