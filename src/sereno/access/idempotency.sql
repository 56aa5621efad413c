-- Stored responses to idempotent requests.

-- name: begin_request
-- Reserves a request for this process, or returns the stored response. A request whose process died is given up after a minute.
with ours as (
    insert into sereno.idempotency_keys as a (who, key, request) values (%(who)s, %(key)s, %(request)s)
    on conflict (who, key) do update set at = sereno.now(), request = excluded.request
    where a.status is null and a.at < sereno.now() - interval '1 minute'
    returning who
)
select exists (select from ours), request = %(request)s, status, body
from (select 1) as one left join sereno.idempotency_keys on who = %(who)s and key = %(key)s;

-- name: store_response
-- Stores the response, for repetitions of the request.
update sereno.idempotency_keys set status = %(status)s, body = %(body)s where who = %(who)s and key = %(key)s;

-- name: drop_request
-- Drops the reservation of a request that changed nothing, so that it may be repeated.
delete from sereno.idempotency_keys where who = %(who)s and key = %(key)s;

-- name: delete_old_responses
-- Deletes a page of responses older than a day. By their time alone, because workers may not read other columns.
delete from sereno.idempotency_keys
where at <= (select max(at) from (select at from sereno.idempotency_keys
                                  where at < sereno.now() - interval '1 day'
                                  order by at limit %(most)s) as page)
returning 1;
