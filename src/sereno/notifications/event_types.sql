-- Event types as rows, so that SQL can create events; and the payload check of events created in SQL.

-- name: declare
-- Upserts the declared types ordered by name, so that two workers that start at once cannot deadlock. The last
-- declaration wins; an unchanged one writes nothing. Types that this code does not declare stay: another version may.
insert into sereno.event_types as known (name, definition)
select name, definition
from jsonb_to_recordset(%(types)s::text::jsonb) as declared(name text, definition jsonb)
order by name
on conflict (name) do update set definition = excluded.definition, declared_at = sereno.now()
where known.definition <> excluded.definition;

-- name: unchecked
-- An event that was created in SQL and not fanned out yet: no code has checked its payload.
select type, payload::text from sereno.events where id = %(event)s and unchecked and matched_at is null and walked = 0;

-- name: refuse
-- Closes the event without deliveries; the note says why.
update sereno.events set matched_at = sereno.now(), note = %(note)s where id = %(event)s and matched_at is null;

-- name: declared
-- Names of the declared event types.
select name from sereno.event_types order by name;

-- name: definitions
-- The declared event types with their definitions.
select name, definition::text from sereno.event_types order by name limit %(most)s;

-- name: notify
-- Create an event of a declared type without its code. The worker checks the payload before anything is sent.
select sereno.notify(
    %(type)s, %(payload)s::text::jsonb, "to" => %(to)s::text[], subject => %(subject)s, key => %(key)s,
    tenant => %(tenant)s, at => %(at)s, ttl => make_interval(secs => %(ttl)s::double precision),
    rate => %(rate)s::double precision, trace => %(trace)s);
