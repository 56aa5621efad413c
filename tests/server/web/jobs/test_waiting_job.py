"""The page of a job that waits for a signal."""

from sereno import Sereno
from tests.server.web.html_reader import Read
from tests.server.web.shared_site import app, ask, connection, database_url, served

__all__ = ["app", "ask", "connection", "database_url", "served"]


def test_a_waiting_job_names_its_signal(app: Sereno, read: Read) -> None:
    @app.task
    def order() -> None: ...

    job = order.using(delay="14d").enqueue()
    with app.database.connection() as own:
        own.execute(
            "insert into sereno.signal_waits (job_id, name, since, until, attempt) "
            "select id, '<paid>:42', created_at, run_at, attempt from sereno.jobs where id = %s",
            [job.id],
        )
        own.commit()
    page = read("jobs", job=str(job.id)).text
    assert "It waits for the signal &#39;&lt;paid&gt;:42&#39; until" in page
    assert "<paid>" not in page
