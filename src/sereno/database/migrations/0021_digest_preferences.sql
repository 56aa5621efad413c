-- How long the messages of event types with a digest are collected for a recipient: an aspect of preferences.

-- Seconds, at most a week; 0: each message at once, by itself. The constraint is not valid, because rows from before have
-- no value and need no scan; new rows are checked.
alter table sereno.preferences
    add column digest_seconds double precision,
    add constraint preferences_digest check (digest_seconds between 0 and 604800) not valid;

-- A parameter cannot be added to a function: it is replaced by one that accepts all calls of the former.
drop function sereno.put_preference(text, text, text, text, text, boolean, jsonb, jsonb, text[]);

-- Set preferences of a recipient, or, without a recipient, the defaults of a tenant; return the id. What is given
-- changes, for exactly this category, event and channel; what is left out stays; what `clear` names is reset. A row
-- without any preference is deleted.
--   select sereno.put_preference('user:7', category => 'tenders', filter => '{"amount": {"min": 1000}}');
create function sereno.put_preference(
    recipient text, tenant text default null, category text default null, event text default null, channel text default null,
    wanted boolean default null, filter jsonb default null, quiet jsonb default null, clear text[] default '{}',
    digest interval default null
) returns bigint
    language plpgsql as $$
declare
    given   text[] := array_remove(array[case when wanted is not null then 'wanted' end,
                                         case when filter is not null then 'filter' end,
                                         case when quiet is not null then 'quiet' end,
                                         case when digest is not null then 'digest' end], null);
    number  bigint;
begin
    perform sereno.check_text(checked.name, checked.value)
    from (values ('recipient', recipient), ('tenant', tenant), ('category', category), ('event', event), ('channel', channel))
         as checked(name, value);
    clear := coalesce(clear, '{}');
    if not clear <@ array['wanted', 'filter', 'quiet', 'digest'] or clear && given then
        raise exception 'clear names preferences to reset that are not also given: wanted, filter, quiet, digest; not %', clear
            using errcode = 'invalid_parameter_value', hint = 'Such as clear => array[''quiet''].';
    end if;
    if digest not between interval '0' and interval '7 days' then
        raise exception 'messages are collected for 7 days at most, not for %', digest
            using errcode = 'invalid_parameter_value', hint = 'Such as digest => ''1 hour''; ''0'' for each message at once.';
    end if;
    insert into sereno.preferences as p (tenant, recipient_id, category, event, channel, wanted, filter, condition, quiet, digest_seconds)
    values (coalesce(put_preference.tenant, ''), case when recipient is not null then sereno.recipient_id(recipient, tenant) end,
            put_preference.category, put_preference.event, put_preference.channel, put_preference.wanted, put_preference.filter,
            sereno.condition(put_preference.filter), sereno.quiet_spans(put_preference.quiet), extract(epoch from put_preference.digest))
    on conflict on constraint preferences_once do update
    set wanted = case when 'wanted' <> all(clear) then coalesce(excluded.wanted, p.wanted) end,
        filter = case when 'filter' <> all(clear) then coalesce(excluded.filter, p.filter) end,
        condition = case when 'filter' <> all(clear) then coalesce(excluded.condition, p.condition) end,
        quiet = case when 'quiet' <> all(clear) then coalesce(excluded.quiet, p.quiet) end,
        digest_seconds = case when 'digest' <> all(clear) then coalesce(excluded.digest_seconds, p.digest_seconds) end,
        changed_at = sereno.now()
    returning id into number;
    delete from sereno.preferences as p
    where p.id = number and p.wanted is null and p.filter is null and p.quiet is null and p.digest_seconds is null;
    return case when not found then number end;
end $$;

-- Comments of public functions; a function without one is internal. docs/reference/sql-functions.md is made of them.
comment on function sereno.put_preference is
    'Write a preference, and return its id; without a recipient, the default of the tenant. digest: how long messages of '
    'event types with a digest are collected. clear: the fields to clear, of wanted, filter, quiet and digest. Returns '
    'null when the preference is empty.';
