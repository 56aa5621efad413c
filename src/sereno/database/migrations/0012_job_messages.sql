-- What running jobs emit for those who watch them: chunks, in order.

-- A job that has emitted chunks. `attempt`: the newest one that did. `ended_at`: when maintenance found the job ended; its
-- chunks are deleted some minutes later.
create table sereno.job_streams (
    job_id    bigint primary key,
    attempt   integer not null,
    ended_at  timestamptz,
    -- Of the chunks that sereno.emit has stored for this attempt.
    bytes     bigint not null default 0
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

-- Store chunks of a running job, for a worker in another language; return the number of the last one, or null if the session
-- no longer holds the job. `chunks`: a list of JSON values. `first`: the number of the first of them, counted from 1 in each
-- attempt; with it, a call can be repeated after a lost reply. Without it they follow the last stored chunk. Written as by
-- the statement `write_chunks` of jobs/job_stream.sql; the lock on the job makes two calls for one job wait for each other.
create function sereno.emit(session bigint, id bigint, attempt integer, chunks jsonb, first integer default null) returns integer
    language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    own     sereno.sessions := sereno.own_session(session);
    moment  timestamptz := sereno.clock_now();
    size    bigint := octet_length(chunks::text);
    count   integer;
    last    integer;
    stored  bigint;
    wrong   text;
begin
    if coalesce(jsonb_typeof(chunks), 'null') <> 'array' or chunks = '[]' or size > 65536 then
        raise exception 'job %: chunks are a list of 1 or more JSON values, at most 64 KiB together', emit.id
            using errcode = 'invalid_parameter_value', hint = 'Such as [{"text": "Hello"}]; emit more of them in several calls.';
    end if;
    perform from sereno.jobs
    where jobs.id = emit.id and jobs.attempt = emit.attempt and session_id = session
      and own.state = 'alive' and own.lease_until > moment
    for update;
    if not found then
        return null;
    end if;
    count := jsonb_array_length(chunks);
    select max(number) into last from sereno.job_chunks where job_id = emit.id and job_chunks.attempt = emit.attempt;
    last := coalesce(last, 0);
    if first <= last and exists (
        select from sereno.job_chunks c
        where c.job_id = emit.id and c.attempt = emit.attempt and c.number = first + count - 1
          and jsonb_array_length(c.chunks) = count) then
        return first + count - 1;
    end if;
    select bytes into stored from sereno.job_streams where job_id = emit.id and job_streams.attempt = emit.attempt;
    if first <> last + 1 then
        wrong := format('its next chunk has the number %s, not %s', last + 1, first);
    elsif last + count > 10000 or coalesce(stored, 0) + size > 4194304 then
        wrong := 'an attempt can emit 10000 chunks with 4 MiB together';
    end if;
    if wrong is not null then
        raise exception 'job %: %', emit.id, wrong using errcode = 'invalid_parameter_value', hint = 'Nothing was stored.';
    end if;
    insert into sereno.job_chunks (job_id, attempt, number, chunks) values (emit.id, emit.attempt, last + count, emit.chunks);
    insert into sereno.job_streams as s (job_id, attempt, bytes) values (emit.id, emit.attempt, size)
    on conflict (job_id) do update
        set attempt = excluded.attempt, ended_at = null,
            bytes = case when s.attempt = excluded.attempt then s.bytes else 0 end + excluded.bytes;
    if last = 0 then
        delete from sereno.job_chunks c where c.job_id = emit.id and c.attempt < emit.attempt;
    end if;
    return last + count;
end $$;

revoke execute on function sereno.emit(bigint, bigint, integer, jsonb, integer) from public;

-- Comments of public functions; a function without one is internal. docs/reference/sql-functions.md is made of them.
comment on function sereno.emit is
    'Store chunks of the output of a running job for those who watch it, and return the number of the last one; '
    'null if the session no longer holds the job. first: the number of the first of these chunks, so that the '
    'call can be repeated.';
