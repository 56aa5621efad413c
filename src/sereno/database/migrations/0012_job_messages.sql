-- What running jobs emit for those who watch them: chunks, in order.

-- A job that has emitted chunks. `attempt`: the newest one that did. `ended_at`: when maintenance found the job ended; its
-- chunks are deleted some minutes later.
create table sereno.job_streams (
    job_id    bigint primary key,
    attempt   integer not null,
    ended_at  timestamptz
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- For maintenance: those without an end, and those that ended long enough ago.
create index job_streams_ended on sereno.job_streams (ended_at);

-- The chunks of one write, in order. `number`: that of the last chunk; the first chunk of an attempt has number 1. Logged:
-- an attempt continues if PostgreSQL restarts within its lease, and an emptied table would leave a gap that readers cannot see.
create table sereno.job_chunks (
    job_id      bigint not null,
    attempt     integer not null,
    number      integer not null,
    chunks      sereno.bounded_json not null,
    written_at  timestamptz not null default sereno.now(),
    primary key (job_id, attempt, number),
    constraint job_chunks_number check (
        jsonb_typeof(chunks) = 'array' and jsonb_array_length(chunks) between 1 and number)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
