"""Renders every hostile template, without a deadline and with a memory limit: one line of JSON for each.

A separate program, so that a template that exceeds its budget ends this process and not the tests.
"""

import json
import math
import sys
from collections.abc import Iterator

from sereno import Recipient
from sereno.notifications.templates import sandbox, sandbox_costs  # noqa: F401 - imported before there are limits
from sereno.notifications.templates.render_process import limit
from sereno.notifications.templates.rows import TemplatePlace
from sereno.notifications.templates.templates import TemplateFailed, TemplateSet, forget_compiled
from tests.notifications.templates.hostile_templates import HOSTILE, OUT_OF_THE_SANDBOX, TOO_LARGE, UNPAID, UNPAID_HTML

# Only a template that escapes takes as much.
MEMORY, CPU_SECONDS = 160 * 1024 * 1024, 1800
PAYLOAD = {"x": "abc", "xs": [1, 2], "d": {"a": 1}}
ANY_SENTENCE, PAID = r"e[,/]", r"it does too much|too large|at most"

# By group: part, text, and the expected error.
GROUPS = {
    "texts": [("body", text, ANY_SENTENCE) for text in HOSTILE],
    "html": [("html", text, ANY_SENTENCE) for text in [*OUT_OF_THE_SANDBOX, *TOO_LARGE]],
    "paid": [("body", text, PAID) for text in UNPAID[::2]],
    "paid too": [
        *(("body", text, PAID) for text in UNPAID[1::2]),
        *(("html", text, PAID) for text in UNPAID_HTML),
    ],
}


class CountedBudget(sandbox_costs.RenderBudget):
    """Records the last budget that was created."""

    last: "CountedBudget | None" = None

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]  # handed on as they are
        CountedBudget.last = self


def results(group: str) -> Iterator[dict[str, object]]:
    for part, text, _ in GROUPS[group]:
        CountedBudget.last = None
        templates = TemplateSet(None)
        templates.use_rows({TemplatePlace("e", "any", "", "", part): text})
        try:
            templates.render("e", "email", "pt-BR", None, PAYLOAD, Recipient(key="user:7", locale="pt-BR"))
            message = "nothing: it was rendered"
        except TemplateFailed as error:
            message = str(error)
        budget = CountedBudget.last
        yield {"message": message, "steps": 0 if budget is None else sandbox_costs.MOST_STEPS - budget._steps}
        forget_compiled()


def main() -> None:
    limit(MEMORY, CPU_SECONDS)
    sandbox_costs.LONGEST_SECONDS = math.inf
    sandbox_costs.RenderBudget = CountedBudget  # type: ignore[assignment,misc]  # counted
    for result in results(sys.argv[1]):
        sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
