"""A fan-out reads its own event and the deliveries of its recipients, however many events are stored."""

import psycopg

from tests.database.plans import Access, accesses, plan


def test_a_throttled_event_does_not_read_the_other_events(connection: psycopg.Connection) -> None:
    connection.execute(
        "insert into sereno.events (type, payload, channels, key, matched_at) "
        "select 'a', '{}', '{p}', g, case when g % 2 = 0 then sereno.now() end from generate_series(1, 5000) g"
    )
    connection.execute("insert into sereno.recipients (key) select 'user:' || g from generate_series(1, 10) g")
    connection.execute(
        "insert into sereno.deliveries (event_id, recipient_id, channel, due_at) "
        "select e.id, r.id, 'p', sereno.now() from sereno.events e, sereno.recipients r where e.id % 10 = 0"
    )
    connection.execute("analyze")
    # As in `begin_fan_out`.
    connection.execute("set enable_seqscan = off; set enable_nestloop = off")
    values = {"event": 7, "size": 1000, "sizes": "{}", "queue": "notifications"}
    top = plan(connection, "notifications/events", "fan_out", values)
    assert accesses(top, "events") == {Access("Index Scan", "events_pkey", True)}
