-- Templates that operators change at run time.

-- name: write
-- Creates or replaces a template.
insert into sereno.templates (event, channel, locale, tenant, part, source, changed_by)
values (%(event)s, %(channel)s, %(locale)s, %(tenant)s, %(part)s, %(source)s, %(actor)s)
on conflict (event, channel, locale, tenant, part) do update
set source = excluded.source, changed_at = sereno.now(), changed_by = excluded.changed_by
returning (xmax = 0);

-- name: delete
-- Deletes a template; the file, if any, is used again.
delete from sereno.templates
where event = %(event)s and channel = %(channel)s and locale = %(locale)s and tenant = %(tenant)s and part = %(part)s
returning event;
