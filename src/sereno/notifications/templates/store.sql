-- Templates that people change while everything runs.

-- name: version
-- Another one after every change: whoever knows this one need not read them again.
select count(*) || ' ' || coalesce(sum(extract(epoch from changed_at)), 0) from sereno.templates;

-- name: read
-- All of them, for those who render.
select coalesce(json_agg(json_build_array(event, channel, locale, tenant, part, source)), '[]')::text from sereno.templates;

-- name: list
-- By name, with who changed them, up to a number.
select coalesce(json_agg(json_build_object(
    'event', event, 'channel', channel, 'locale', locale, 'tenant', tenant, 'part', part, 'length', length(source),
    'changed_at', changed_at, 'changed_by', changed_by) order by event, channel, locale, tenant, part), '[]')::text
from (select * from sereno.templates where %(event)s::text is null or event = %(event)s
      order by event, channel, locale, tenant, part limit %(most)s) as found;

-- name: write
-- Create it, or put other words into it.
insert into sereno.templates (event, channel, locale, tenant, part, source, changed_by)
values (%(event)s, %(channel)s, %(locale)s, %(tenant)s, %(part)s, %(source)s, %(actor)s)
on conflict (event, channel, locale, tenant, part) do update
set source = excluded.source, changed_at = sereno.now(), changed_by = excluded.changed_by
returning (xmax = 0);

-- name: delete
-- What the files say counts again.
delete from sereno.templates
where event = %(event)s and channel = %(channel)s and locale = %(locale)s and tenant = %(tenant)s and part = %(part)s
returning event;

-- name: last_payload
-- Of the newest event of a type: something real to try words on.
select payload::text from sereno.events
where type = %(event)s and (%(tenant)s::text is null or tenant = %(tenant)s)
order by id desc limit 1;
