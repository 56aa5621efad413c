-- Reports of workers about the carriers of their queues.

-- name: reached
-- The carrier answered. If another worker has just written the same, nothing is written. Rows of queues that no worker
-- has reported for a week, and that had no messages then, are deleted. So are the fences of jobs that returned from
-- the relay an hour ago, if the carrier is empty: a copy of them was delivered, or was never stored.
with forgotten as (
    delete from sereno.carrier_states
    where reported_at < sereno.now() - interval '7 days' and pending_messages + held_messages = 0 and queue <> %(queue)s
),
fences as (
    delete from sereno.carried_jobs using sereno.carried_queues as carried
    where carried_jobs.queue = %(queue)s and position = 9223372036854775807
      and %(pending_messages)s::bigint + %(held_messages)s::bigint = 0
      and carried.queue = %(queue)s and carried.changed_at < sereno.now() - interval '1 hour'
)
insert into sereno.carrier_states as state (
    queue, kind, address, direct, reported_at, reached_at, pending_messages, held_messages, redelivered_messages,
    pending_jobs, oldest_at, bytes, max_bytes, replicas, current_replicas, leader)
values (%(queue)s, %(kind)s, %(address)s, %(direct)s, sereno.now(), sereno.now(), %(pending_messages)s,
        %(held_messages)s, %(redelivered_messages)s, %(pending_jobs)s,
        sereno.now() - make_interval(secs => %(oldest)s::double precision), %(bytes)s, %(max_bytes)s, %(replicas)s,
        %(current_replicas)s, %(leader)s)
on conflict (queue) do update
set kind = excluded.kind, address = excluded.address, direct = excluded.direct, reported_at = excluded.reported_at,
    reached_at = excluded.reached_at, error = null, pending_messages = excluded.pending_messages,
    held_messages = excluded.held_messages, redelivered_messages = excluded.redelivered_messages,
    pending_jobs = excluded.pending_jobs, oldest_at = excluded.oldest_at, bytes = excluded.bytes,
    max_bytes = excluded.max_bytes, replicas = excluded.replicas, current_replicas = excluded.current_replicas,
    leader = excluded.leader
where state.reached_at is null or state.error is not null
   or state.reached_at not between sereno.now() - make_interval(secs => %(fresh)s) and sereno.now();

-- name: not_reached
-- The carrier did not answer this worker. Another worker may reach it: the figures and `reached_at` stay.
insert into sereno.carrier_states as state (queue, kind, address, direct, reported_at, error)
values (%(queue)s, %(kind)s, %(address)s, %(direct)s, sereno.now(), %(error)s)
on conflict (queue) do update
set kind = excluded.kind, address = excluded.address, direct = excluded.direct, reported_at = excluded.reported_at,
    error = excluded.error;
