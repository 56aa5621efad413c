"""`python -m tests.proof`: write docs/why/proof.md from the recorded runs."""

from tests.proof.page import PAGE, page
from tests.proof.results import load

if __name__ == "__main__":
    PAGE.write_text(page(load()))
    print(f"wrote {PAGE.relative_to(PAGE.parents[2])}")  # noqa: T201 - a command
