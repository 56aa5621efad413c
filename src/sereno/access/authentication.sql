-- Owners of presented tokens and cookies, and sign-outs.

-- name: find_principal
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

-- name: find_principal_unnoted
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

-- name: token_status
-- Whether a token was ever created, and whether one is valid now. Rows of revoked and expired tokens are retained, so a
-- server that has had a token never becomes open again.
select exists (select from sereno.tokens),
       exists (select from sereno.tokens
               where revoked_at is null and (expires_at is null or expires_at > sereno.now()));
