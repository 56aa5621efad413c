"""Each command does what its help says. Data is on stdout, messages are on stderr."""

import json
import re
from pathlib import Path

import psycopg
import pytest

from sereno.cli.monitoring.top import sparkline
from sereno.database.migrate import migrations, pending
from tests.cli.conftest import Command
from tests.manual_worker import ManualWorker

APPLICATION = """
from sereno import Sereno
app = Sereno()

@app.task(queue="letters", priority=2)
def greet(name: str, times: int = 1) -> None: ...
"""


def test_job_list_is_tab_separated_in_a_pipe(sereno: Command, manual: ManualWorker) -> None:
    dead = manual.dead("no\troute\nat all")
    done = sereno("job", "list", "--state", "dead")
    assert done.exit_code == 0
    header, line = done.stdout.splitlines()
    assert header.split("\t")[:3] == ["id", "state", "task"]
    cells = line.split("\t")
    assert cells[:3] == [str(dead), "dead", "greet"]
    assert cells[-1] == "OSError: no route at all"
    assert "\x1b" not in done.stdout


def test_job_list_as_json_and_json_lines(sereno: Command, manual: ManualWorker) -> None:
    ids = [manual.dead(), manual.enqueue(tenant="r1")]
    page = json.loads(sereno("job", "list", "-o", "json").stdout)
    assert [item["id"] for item in page["items"]] == ids[::-1]
    assert page["next"] is None
    assert {"id", "state", "task", "queue", "tenant", "run_at", "error_type", "reason"} <= set(page["items"][0])
    lines = sereno("job", "list", "-o", "jsonl").stdout.splitlines()
    assert [json.loads(line)["id"] for line in lines] == ids[::-1]


def test_job_list_pages(sereno: Command, manual: ManualWorker) -> None:
    ids = [manual.enqueue() for _ in range(3)]
    page = json.loads(sereno("job", "list", "-n", "2", "-o", "json").stdout)
    assert page["next"] == ids[1]
    rest = json.loads(sereno("job", "list", "-n", "2", "--before", str(page["next"]), "-o", "json").stdout)
    assert [item["id"] for item in rest["items"]] == [ids[0]]


@pytest.mark.slow
def test_job_list_filters(sereno: Command, manual: ManualWorker, subtests: pytest.Subtests) -> None:
    manual.dead("connection reset")
    manual.enqueue(tenant="r1")
    for words, count in [
        (["--state", "dead"], 1),
        (["--state", "dead", "--state", "ready"], 2),
        (["--tenant", "r1"], 1),
        (["--error", "RESET"], 1),
        (["--finished-after", "1h"], 1),
        (["--finished-before", "1h"], 0),
        (["--created-after", "2020-01-01"], 2),
        (["--queue", "default"], 1),
    ]:
        with subtests.test(words=words):
            assert len(sereno("job", "list", *words, "-o", "jsonl").stdout.splitlines()) == count


def test_job_list_searches(sereno: Command, manual: ManualWorker) -> None:
    dead, waiting = manual.dead("connection reset"), manual.enqueue(tenant="r1")
    for words, ids in (
        (["state:dead error:reset"], [dead]),
        (["args.name:Ada -tenant:*"], [dead]),
        (["args.name:Ada", "--tenant", "r1"], [waiting]),
        (["--", "-state:dead"], [waiting]),
    ):
        lines = sereno("job", "list", "-o", "jsonl", *words).stdout.splitlines()
        assert [json.loads(line)["id"] for line in lines] == ids
    refused = sereno("job", "list", "stat:dead")
    assert refused.exit_code != 0
    assert "did you mean state?" in refused.stderr


def test_an_invalid_time_is_a_usage_error(sereno: Command) -> None:
    result = sereno("job", "list", "--created-after", "soon")
    assert result.exit_code == 2
    assert "2h" in result.stderr


def test_job_show_as_text_and_as_json(sereno: Command, manual: ManualWorker) -> None:
    job_id = manual.dead("connection reset", tenant="r1")
    page = sereno("job", "show", job_id).stdout
    for words in (f"{job_id}  greet", "dead", "r1", '{"name": "Ada"}', "attempt 1", "OSError: connection reset"):
        assert words in page
    detail = json.loads(sereno("job", "show", job_id, "-o", "json").stdout)
    assert detail["job"]["id"] == job_id
    assert [attempt["outcome"] for attempt in detail["attempts"]] == ["dead"]


def test_job_enqueue_checks_arguments_and_creates_a_job(sereno: Command, manual: ManualWorker, tmp_path: Path) -> None:
    (tmp_path / "letters.py").write_text(APPLICATION)
    app = ["-a", "letters.py:app"]
    result = sereno("job", "enqueue", "greet", '{"name": "Ada"}', "--tenant", "r1", "--delay", "1h", *app)
    assert result.exit_code == 0, result.stderr
    job = json.loads(sereno("job", "show", result.stdout.strip(), "-o", "json").stdout)["job"]
    assert (job["state"], job["queue"], job["priority"], job["tenant"]) == ("scheduled", "letters", 2, "r1")
    assert job["args"] == {"name": "Ada"}
    wrong = sereno("job", "enqueue", "greet", '{"nam": 1}', *app)
    assert wrong.exit_code == 2
    assert "it takes (name, times)" in wrong.stderr
    assert sereno("job", "enqueue", "unknown", *app).exit_code == 3
    without = sereno("job", "enqueue", "greet", '{"name": "x"}')
    assert without.exit_code == 3
    assert "SERENO_APP" in without.stderr


def test_job_enqueue_twice_under_one_key_gives_the_same_job(sereno: Command, tmp_path: Path) -> None:
    (tmp_path / "letters.py").write_text(APPLICATION)
    words = ["job", "enqueue", "greet", '{"name": "x"}', "--unique-key", "k", "-a", "letters.py"]
    first, second = sereno(*words), sereno(*words)
    assert first.stdout == second.stdout
    assert "already" in second.stderr


def test_job_retry_changes_nothing_in_a_dry_run(sereno: Command, manual: ManualWorker) -> None:
    for tenant in ("r1", "r2"):
        manual.dead("connection reset", tenant=tenant)
    manual.dead("other", task="other")
    words = ["job", "retry", "--state", "dead", "--error", "connection reset", "--rate", "10/s"]
    planned = sereno(*words, "--dry-run").stdout
    assert "Would retry 2 jobs, 2 tenants, 0.2 s at 10/s." in planned
    assert "greet 2" in planned
    assert json.loads(sereno(*words, "--dry-run", "-o", "json").stdout)["by_tenant"] == {"r1": 1, "r2": 1}
    assert manual.audit() == []
    result = sereno(*words, "--yes")
    assert "Retried: 2 jobs." in result.stdout
    assert manual.state(1) in ("ready", "scheduled")
    assert manual.state(3) == "dead"


def test_job_retry_names_the_job_that_has_the_unique_key(sereno: Command, manual: ManualWorker) -> None:
    dead = manual.dead(unique_key="k")
    live = manual.enqueue(unique_key="k")
    found = sereno("job", "retry", dead)
    assert "because a live job has their unique key: 1 job." in found.stdout
    assert f"{dead}: job {live} has its unique key" in found.stdout


def test_job_retry_by_id_needs_no_yes(sereno: Command, manual: ManualWorker) -> None:
    job_id = manual.dead()
    assert "1 job." in sereno("job", "retry", job_id).stdout
    assert manual.state(job_id) == "ready"
    again = sereno("job", "retry", job_id)
    assert again.exit_code == 7
    assert str(job_id) in again.stderr


def test_jobs_are_cancelled_and_deleted(sereno: Command, manual: ManualWorker) -> None:
    running, waiting = manual.enqueue(), manual.enqueue()
    manual.claim(manual.worker())
    result = sereno("job", "cancel", running, waiting, "--reason", "not wanted")
    assert "Cancelled: 1 job." in result.stdout
    assert "still running: 1 job." in result.stdout
    refused = sereno("job", "delete", running)
    assert refused.exit_code == 8
    assert "is running" in refused.stderr
    assert "Deleted: 1 job." in sereno("job", "delete", waiting).stdout
    assert manual.state(waiting) is None


def test_queues_are_listed_paused_and_resumed(sereno: Command, manual: ManualWorker) -> None:
    manual.enqueue()
    assert sereno("queue", "pause", "default", "--note", "down").exit_code == 0
    (item,) = json.loads(sereno("queue", "list", "-o", "json").stdout)["items"]
    assert item["ready"] == {"value": 1, "exact": True}
    assert item["note"] == "down"
    assert "was paused already" in sereno("queue", "pause", "default").stderr
    assert "is resumed" in sereno("queue", "resume", "default").stderr
    refused = sereno("queue", "pause", "defualt")
    assert refused.exit_code == 8
    assert "there is no queue 'defualt': did you mean default?" in refused.stderr
    assert "--force pauses one that does not exist yet" in sereno("queue", "pause", "--tenant", "r1").stderr
    assert sereno("queue", "pause", "--task", "nothing").exit_code == 8
    sereno("queue", "pause", "--tenant", "r1", "--force")
    assert "The tenant 'r1' is paused" in sereno("queue", "list").stderr
    assert sereno("queue", "pause", "default", "--task", "greet").exit_code == 2
    assert sereno("queue", "pause").exit_code == 2


def test_why_as_text_and_as_json(sereno: Command, manual: ManualWorker) -> None:
    job_id = manual.enqueue()
    assert sereno("why", job_id).stdout.startswith("No worker is alive")
    assert json.loads(sereno("why", job_id, "-o", "json").stdout)["id"] == job_id
    missing = sereno("why", 99)
    assert missing.exit_code == 7
    assert missing.stdout.startswith("No job has the id 99.")


def test_status_prints_workers_and_dead_jobs(sereno: Command, manual: ManualWorker) -> None:
    manual.dead()
    manual.worker()
    text = sereno("status").stdout
    assert "1 worker is alive with 2 slots" in text
    assert "1 dead job" in text
    assert json.loads(sereno("status", "-o", "json").stdout)["workers_alive"] == 1


@pytest.mark.slow
def test_doctor_and_verify_as_json(sereno: Command, manual: ManualWorker) -> None:
    manual.worker()
    healthy = sereno("doctor", "-o", "json")
    assert healthy.exit_code == 0
    assert json.loads(healthy.stdout)["healthy"] is True
    assert sereno("verify").exit_code == 0
    job_id = manual.dead()
    manual.connection.execute("update sereno.history set reason = null")
    broken = sereno("verify")
    assert broken.exit_code == 6
    assert re.search(rf"FAIL\s+dead_with_reason.*\n\s+{job_id}: it is dead without a reason", broken.stdout)
    assert json.loads(sereno("verify", "--all", "-o", "json").stdout)["holds"] is False


@pytest.mark.slow
def test_migrate_checks_applies_and_prints(sereno: Command, empty_database_url: str) -> None:
    given = {"SERENO_DATABASE_URL": empty_database_url}
    behind = sereno("migrate", "--check", **given)
    assert behind.exit_code == 5
    assert len(behind.stdout.splitlines()) == len(migrations())
    assert sereno("migrate", **given).exit_code == 0
    assert sereno("migrate", "--check", **given).exit_code == 0
    name = psycopg.conninfo.conninfo_to_dict(empty_database_url)["dbname"]
    assert re.fullmatch(
        rf"Up to date already: schema sereno in database {name} at \S+\.\n", sereno("migrate", **given).stderr
    )
    script = sereno("migrate", "--sql", "--schema", "elsewhere", **given).stdout
    with psycopg.connect(empty_database_url, autocommit=True) as connection:
        connection.execute(script.encode())
        assert pending(connection, "elsewhere") == []


def test_config_show_names_sources_and_masks_secrets(sereno: Command) -> None:
    result = sereno(
        "config",
        "show",
        "-o",
        "json",
        SERENO_DATABASE_URL="postgresql://eve:hunter2@db/x?password=hunter2",
        SERENO_METRICS_TOKEN="hunter2",  # noqa: S106 - it must not be shown
    )
    lines = {line["setting"]: line for line in json.loads(result.stdout)["items"]}
    assert lines["database_url"]["source"] == "environment"
    assert lines["schema"] == {"setting": "schema", "value": "sereno", "source": "default"}
    assert "eve" in lines["database_url"]["value"]
    assert "hunter2" not in result.stdout


def test_config_show_masks_a_password_of_any_characters(sereno: Command, subtests: pytest.Subtests) -> None:
    for password in ["hun/ter2", "hun@ter2", "h:un/te?r2@x"]:
        with subtests.test(password=password):
            result = sereno("config", "show", "-o", "json", SERENO_DATABASE_URL=f"postgresql://eve:{password}@db/x")
            lines = {line["setting"]: line["value"] for line in json.loads(result.stdout)["items"]}
            assert lines["database_url"] == "postgresql://eve:********@db/x"


def test_top_in_a_pipe_prints_lines(sereno: Command, manual: ManualWorker) -> None:
    manual.enqueue()
    done = sereno("top", "--every", "0.2", "--seconds", "0.5")
    assert done.exit_code == 0
    assert "ready: default 1" in done.stdout


def test_a_sparkline_shows_the_highest_as_full() -> None:
    assert sparkline([0.0, 4.0, 8.0]) == "▁▄█"
    assert sparkline([0.0]) == "▁"


def test_the_version_is_printed(sereno: Command) -> None:
    assert sereno("version").stdout.startswith("sereno ")
    assert sereno("--version").stdout.startswith("sereno ")
