-- Chunks that running jobs emit, and what the readers of a job's stream see.

-- name: write_chunks
-- Stores batches of chunks, fenced by (job, attempt, session). FOR UPDATE, in order: the periodic write and the settlement of
-- a job may write the same batch, and the second one must wait here and not at the primary key, where each would hold what
-- the other needs. A batch that is there already was written before its reply was lost. The first batch of an attempt
-- deletes the chunks of earlier ones.
with item as materialized (
    select * from jsonb_to_recordset(%(items)s::text::jsonb) as i(id bigint, attempt integer, number integer, chunks jsonb)
),
held as materialized (
    select id, attempt from sereno.jobs
    where id = any(%(ids)s) and session_id = %(session)s
    order by id
    for update
),
mine as materialized (
    select id, attempt, number, chunks, number = jsonb_array_length(chunks) as is_first
    from held join item using (id, attempt)
),
written as (
    insert into sereno.job_chunks (job_id, attempt, number, chunks)
    select id, attempt, number, chunks from mine order by id, number
    on conflict do nothing
),
opened as (
    insert into sereno.job_streams (job_id, attempt)
    select id, attempt from mine where is_first order by id
    on conflict (job_id) do update set attempt = excluded.attempt, ended_at = null
),
replaced as (
    delete from sereno.job_chunks using mine
    where mine.is_first and job_chunks.job_id = mine.id and job_chunks.attempt < mine.attempt
)
select coalesce(json_agg(distinct id), '[]')::text from mine;

-- name: mark_ended
-- Marks the streams of jobs that are no longer live, however they ended. A job that was requeued meanwhile is live again.
update sereno.job_streams
set ended_at = case when live.id is null then sereno.now() end
from sereno.job_streams as found left join sereno.jobs as live on live.id = found.job_id
where job_streams.job_id = found.job_id and (found.ended_at is null) = (live.id is null);

-- name: delete_ended
-- Deletes a page of streams that ended long enough ago, with their chunks. SKIP LOCKED: one that is locked is in use again.
with old as materialized (
    select job_id from sereno.job_streams
    where ended_at < sereno.now() - make_interval(secs => %(seconds)s)
      and not exists (select from sereno.jobs where jobs.id = job_streams.job_id)
    order by ended_at limit %(most)s
    for update skip locked
),
chunks as (delete from sereno.job_chunks where job_id = any(array(select job_id from old)))
delete from sereno.job_streams where job_id = any(array(select job_id from old)) returning job_id;

-- name: job_views
-- The state of each job with its progress, the number of its last chunk, and the batches that follow the last one that the
-- reader knows. One statement, so a job that has ended is seen with all its chunks. A success without history leaves only
-- its stream. At most %(most)s batches of each.
select wanted.id, job.state, coalesce(job.attempt, stream.attempt), job.tenant, progress.fraction, progress.note,
       coalesce(last.number, 0), coalesce(news.batches, '[]')::text, job.error, stream.job_id is not null
from unnest(%(ids)s::bigint[], %(attempts)s::integer[], %(numbers)s::integer[])
    with ordinality as wanted(id, attempt, number, place)
left join sereno.job_streams as stream on stream.job_id = wanted.id
left join lateral (
    select state, attempt, tenant, null as error from sereno.jobs where jobs.id = wanted.id
    union all
    (select state, attempt, tenant, concat_ws(': ', error_type, coalesce(error_message, reason)) from sereno.history
     where history.id = wanted.id order by finished_at desc limit 1)
    limit 1
) as job on true
left join sereno.progress on progress.job_id = wanted.id and progress.attempt = job.attempt
left join lateral (
    select number from sereno.job_chunks
    where stream.job_id is not null and job_id = wanted.id and job_chunks.attempt = coalesce(job.attempt, stream.attempt)
    order by number desc limit 1
) as last on true
left join lateral (
    select json_agg(json_build_array(number, chunks) order by number) as batches
    from (select number, chunks from sereno.job_chunks
          where last.number is not null and job_id = wanted.id and attempt = coalesce(job.attempt, stream.attempt)
            and number > case when wanted.attempt = coalesce(job.attempt, stream.attempt) then wanted.number else 0 end
          order by number limit %(most)s) as page
) as news on true
order by wanted.place;

-- name: chunks_after
-- A page of the batches of an attempt after a chunk, for a reader that is behind.
select number, chunks::text from sereno.job_chunks
where job_id = %(id)s and attempt = %(attempt)s and number > %(number)s
order by number limit %(most)s;

-- name: last_chunks
-- The newest batches of the newest attempt, newest first, for the page of a job.
select job_chunks.number, chunks::text
from sereno.job_streams join sereno.job_chunks using (job_id, attempt)
where job_streams.job_id = %(id)s
order by job_chunks.number desc limit %(most)s;
