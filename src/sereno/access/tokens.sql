-- API tokens, sign-outs, stored responses to idempotent requests, and the audit.

-- name: create
-- Creates a token; returns no row if an active one of the same tenant has this name.
insert into sereno.tokens (name, hash, role, tenant, created_by, expires_at)
values (%(name)s, %(hash)s, %(role)s, %(tenant)s, %(actor)s, sereno.now() + make_interval(secs => %(expires_in)s::double precision))
on conflict (tenant, name) where revoked_at is null do nothing
returning row_to_json(tokens)::text;

-- name: find
-- The active token with this hash, or with this id and a sign-in that was not ended. The time of its last use is updated at most
-- once a minute.
with found as materialized (
    select * from sereno.tokens
    where (hash = %(hash)s::bytea or id = %(id)s::bigint) and revoked_at is null
      and (expires_at is null or expires_at > sereno.now())
      and not exists (select from sereno.sign_outs where sign_in = %(sign_in)s::text)
),
used as (
    update sereno.tokens set used_at = sereno.now()
    where id = (select id from found) and (used_at is null or used_at < sereno.now() - interval '1 minute')
)
select id, name, role, tenant from found;

-- name: look
-- The same for a read-only server, which does not update the time of last use either.
select id, name, role, tenant
from sereno.tokens
where (hash = %(hash)s::bytea or id = %(id)s::bigint) and revoked_at is null
  and (expires_at is null or expires_at > sereno.now())
  and not exists (select from sereno.sign_outs where sign_in = %(sign_in)s::text);

-- name: sign_out
-- Ends a sign-in, on every server.
insert into sereno.sign_outs (sign_in, ends_at) values (%(sign_in)s, to_timestamp(%(until)s::double precision))
on conflict (sign_in) do nothing;

-- name: forget_sign_outs
-- Deletes sign-outs whose cookies have expired; a day later, for servers whose clock is behind.
delete from sereno.sign_outs
where sign_in = any(array(select sign_in from sereno.sign_outs
                          where ends_at < sereno.now() - interval '1 day'
                          order by sign_in limit %(most)s))
returning 1;

-- name: list
-- All tokens, active ones first.
select row_to_json(line)::text
from (select id, name, role, tenant, created_at, created_by, expires_at, revoked_at, used_at from sereno.tokens
      order by revoked_at is not null, id desc limit %(most)s) as line;

-- name: revoke
-- Revokes a token. If several tenants have tokens of this name, none is revoked; returns how many have the name.
with found as materialized (
    select id, name = %(name)s as is_named from sereno.tokens
    where (name = %(name)s or id::text = %(name)s) and revoked_at is null
),
gone as (
    update sereno.tokens set revoked_at = sereno.now()
    where id = (select id from found where (select count(*) from found where is_named) <= 1 order by is_named desc limit 1)
    returning id, name, tenant
)
select (select count(*) from found where is_named), id, name, tenant from (select 1) as one left join gone on true;

-- name: status
-- Whether a token was ever created, and whether one is valid now. Rows of revoked and expired tokens are retained, so a
-- server that has had a token never becomes open again.
select exists (select from sereno.tokens),
       exists (select from sereno.tokens
               where revoked_at is null and (expires_at is null or expires_at > sereno.now()));

-- name: begin_answer
-- Reserves a request for this process, or returns the stored response. A request whose process died is given up after a minute.
with ours as (
    insert into sereno.answers as a (who, key, request) values (%(who)s, %(key)s, %(request)s)
    on conflict (who, key) do update set at = sereno.now(), request = excluded.request
    where a.status is null and a.at < sereno.now() - interval '1 minute'
    returning who
)
select exists (select from ours), request = %(request)s, status, body
from (select 1) as one left join sereno.answers on who = %(who)s and key = %(key)s;

-- name: end_answer
-- Stores the response, for repetitions of the request.
update sereno.answers set status = %(status)s, body = %(body)s where who = %(who)s and key = %(key)s;

-- name: drop_answer
-- Drops the reservation of a request that changed nothing, so that it may be repeated.
delete from sereno.answers where who = %(who)s and key = %(key)s;

-- name: forget_answers
-- Deletes a page of responses older than a day. By their time alone, because workers may not read other columns.
delete from sereno.answers
where at <= (select max(at) from (select at from sereno.answers
                                  where at < sereno.now() - interval '1 day'
                                  order by at limit %(most)s) as page)
returning 1;

-- name: audit
-- The audit, newest first. Actor, action and search terms are checked within a window of the newest lines. With `bytes`, a page
-- ends with the line that passes them. Of a line that does not fit, only its existence is returned.
select case when fits then row_to_json(line)::text end
from (select page.*, row_number() over (order by id desc) <= %(most)s
             and (%(bytes)s::bigint is null
                  or coalesce(sum(octet_length(detail::text))
                              over (order by id desc rows between unbounded preceding and 1 preceding), 0) < %(bytes)s) as fits
      from (
      select * from (select id, at, actor, action, subject, detail, login from sereno.audit
                     where (%(before)s::bigint is null or id < %(before)s)
                       and (%(subject)s::text is null or subject = %(subject)s)
                     order by id desc limit %(window)s) as newest
      where (%(actor)s::text is null or actor = %(actor)s)
        and (%(action)s::text is null or action = %(action)s or starts_with(action, %(action)s || '.'))
-- use: search.terms_begin
               when 'actor' then actor like any(patterns)
               when 'action' then action like any(patterns)
               when 'subject' then subject like any(patterns)
               when 'at' then date_part('epoch', at) >= low and date_part('epoch', at) < high
               else actor ilike any(patterns) or action ilike any(patterns) or subject ilike any(patterns)
-- use: search.terms_end
      order by id desc offset %(skip)s limit %(most)s + 1) as page) as line
order by id desc;
