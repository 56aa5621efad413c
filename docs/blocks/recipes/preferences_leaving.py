from tenders import app


async def leave() -> None:
    # the block of the page
