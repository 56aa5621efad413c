"""The schedules of the two cycles follow the settings."""

from sereno import Cron, Sereno


def test_both_cycles_run_in_the_zone_of_the_archive() -> None:
    app = Sereno(archive_url="disk", archive_move_cron="5 2 * * *", archive_zone="America/Santiago")
    assert {new.key: new.when for new in app.archive.schedules(app.schedules)} == {
        "sereno.archive_move": Cron("5 2 * * *", tz="America/Santiago"),
        "sereno.archive_export": Cron("47 3 * * *", tz="America/Santiago"),
    }
