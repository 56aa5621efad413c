-- Templates as rendering and lists read them.

-- name: version
-- Changes with every change of a template: a process that knows this version need not read the templates again.
select count(*) || ' ' || coalesce(sum(extract(epoch from changed_at)), 0) from sereno.templates;

-- name: read
-- All templates, for rendering.
select coalesce(json_agg(json_build_array(event, channel, locale, tenant, part, source)), '[]')::text from sereno.templates;

-- name: list
-- By name, with the last change, up to a limit.
select coalesce(json_agg(json_build_object(
    'event', event, 'channel', channel, 'locale', locale, 'tenant', tenant, 'part', part, 'length', length(source),
    'changed_at', changed_at, 'changed_by', changed_by) order by event, channel, locale, tenant, part), '[]')::text
from (select * from sereno.templates where %(event)s::text is null or event = %(event)s
      order by event, channel, locale, tenant, part limit %(most)s) as found;

-- name: last_payload
-- The payload of the newest event of a type, as a realistic sample.
select payload::text from sereno.events
where type = %(event)s and (%(tenant)s::text is null or tenant = %(tenant)s)
order by id desc limit 1;
