"""Numbers have one format on a page: that of its language."""

import re

import pytest

from sereno import Sereno
from tests.server.web.visit import Visits

JOBS = 1_234


@pytest.mark.slow
def test_a_number_has_the_format_of_the_language(app: Sereno, browse: Visits, subtests: pytest.Subtests) -> None:
    @app.task
    def work() -> None: ...

    app.enqueue_many(work.job() for _ in range(JOBS))
    for language, shown in (("en", "1,234"), ("es", "1\N{NARROW NO-BREAK SPACE}234"), ("pt", "1.234")):
        with subtests.test(language):
            page = browse("queues", language=language)
            found = re.findall(r"(?<!\d)1\D?234(?!\d)", page.locator("main").inner_text())
            assert found
            assert {*found} == {shown}
