import asyncio

from click.testing import CliRunner

from sereno.cli.main import main

TABLES = """
create schema cron;
create table cron.job (jobid bigint primary key, schedule text, command text, active boolean default true, jobname text,
    username text default current_user, database text default current_database());
create function cron.alter_job(job_id bigint, schedule text default null, command text default null,
    database text default null, username text default null, active boolean default null) returns void
    language sql as 'update cron.job set active = coalesce(alter_job.active, job.active) where jobid = job_id';
insert into cron.job (jobid, jobname, schedule, command) values (42, 'nightly', '0 3 * * *', 'create table cleaned ()');
select cron.alter_job(jobid, active => false) from cron.job;
"""
# the block of the page


async def work(looking: psycopg.Connection) -> None:
    async with app.working():
        while looking.execute("select to_regclass('cleaned')").fetchone() == (None,):
            await asyncio.sleep(0.1)
    await app.aclose()


if __name__ == "__main__":
    os.environ["MAINTENANCE_URL"] = os.environ["SERENO_DATABASE_URL"]
    connection = psycopg.connect(os.environ["SERENO_DATABASE_URL"], autocommit=True)
    connection.execute(TABLES)
    words = "schedule import --from pg-cron -a jobs.py:app --strict"
    done = CliRunner().invoke(main, words.split())
    assert done.exit_code == 0, done.output
    made = app.schedules.get("pg-cron:nightly")
    assert (made.task, made.state, made.overlap) == ("run_sql", "disabled", "queue_one"), made
    app.schedules.run("pg-cron:nightly")
    asyncio.run(work(connection))
