-- Kinds of events as rows: what the code declares, for those who tell without it; and events that SQL wrote.

-- name: declare
-- What the code says, in the order of the names, so that two who start never wait for each other in a ring. The last word
-- holds. Said again unchanged, nothing is written; what the code no longer says stays, because another version may.
insert into sereno.event_types as known (name, definition)
select name, definition
from jsonb_to_recordset(%(types)s::text::jsonb) as said(name text, definition jsonb)
order by name
on conflict (name) do update set definition = excluded.definition, declared_at = sereno.now()
where known.definition <> excluded.definition;

-- name: unchecked
-- An event that SQL wrote and nobody has walked yet: no code has seen its payload.
select type, payload::text from sereno.events where id = %(event)s and unchecked and matched_at is null and walked = 0;

-- name: refuse
-- Nobody is told of it, and its note says why.
update sereno.events set matched_at = sereno.now(), note = %(note)s where id = %(event)s and matched_at is null;
