-- API tokens.

-- name: create
-- Creates a token; returns no row if an active one of the same tenant has this name.
insert into sereno.tokens (name, hash, role, tenant, created_by, expires_at)
values (%(name)s, %(hash)s, %(role)s, %(tenant)s, %(actor)s, sereno.now() + make_interval(secs => %(expires_in)s::double precision))
on conflict (tenant, name) where revoked_at is null do nothing
returning row_to_json(tokens)::text;

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
