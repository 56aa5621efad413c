import os

import psycopg
from click.testing import CliRunner

from sereno.cli.main import main

TABLES = """
create table django_celery_beat_intervalschedule (id integer primary key, every integer, period text);
create table django_celery_beat_crontabschedule (id integer primary key, minute text, hour text, day_of_week text,
    day_of_month text, month_of_year text, timezone text);
create table django_celery_beat_solarschedule (id integer primary key);
create table django_celery_beat_clockedschedule (id integer primary key, clocked_time timestamptz);
create table django_celery_beat_periodictask (id integer primary key, name text, task text, args text, kwargs text,
    queue text, priority integer, enabled boolean, one_off boolean, expires timestamptz, expire_seconds integer,
    start_time timestamptz, last_run_at timestamptz, interval_id integer, crontab_id integer, solar_id integer,
    clocked_id integer);
insert into django_celery_beat_crontabschedule values (1, '30', '9', '1-5', '*', '*', 'Europe/Riga');
insert into django_celery_beat_periodictask (id, name, task, args, kwargs, enabled, one_off, crontab_id)
    values (1, 'menu 42', 'shop.tasks.refresh_menu', '[]', '{"restaurant": "r42"}', true, false, 1);
"""
# the block of the page


if __name__ == "__main__":
    with psycopg.connect(os.environ["SERENO_DATABASE_URL"]) as connection:
        connection.execute(TABLES)
    words = "schedule import --from celery-beat -a jobs.py:app --strict"
    done = CliRunner().invoke(main, words.split())
    assert done.exit_code == 0, done.output
    made = app.schedules.get("celery-beat:menu 42")
    assert (made.task, made.args, made.overlap) == ("shop.tasks.refresh_menu", {"restaurant": "r42"}, "allow"), made
