"""Tables, organisations and integrations. `tables` may run at every deployment, after `sereno migrate`.

python -m separate_worker.install tables
python -m separate_worker.install organisation acme
python -m separate_worker.install integration crm-of-acme acme
"""

import argparse
import asyncio
import secrets

from separate_worker.app import app
from separate_worker.leads import add_organisation
from separate_worker.queues import connect, create_tables
from separate_worker.webhooks import add_integration


async def main(given: argparse.Namespace) -> None:
    match given.command:
        case "tables":
            await create_tables()
            print("The tables and views are there.")
        case "organisation":
            key = secrets.token_urlsafe(24)
            async with await connect() as connection:
                await add_organisation(connection, given.name, key)
            print(f"The key of {given.name}, which is not shown again: {key}")
        case "integration":
            async with await connect() as connection:
                secret = await add_integration(connection, given.name, given.organisation)
            print(f"The secret for messages to /webhooks/{given.name}: {secret}")
    await app.aclose()


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m separate_worker.install")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("tables", help="create the tables and views")
    organisation = commands.add_parser("organisation", help="add an organisation, or replace its key")
    organisation.add_argument("name")
    integration = commands.add_parser("integration", help="add an integration, or replace its secret")
    integration.add_argument("name")
    integration.add_argument("organisation")
    return parser


if __name__ == "__main__":
    asyncio.run(main(arguments().parse_args()))
