-- What a person may change: pauses, and the jobs that a filter finds. Each change goes into the audit with it.

-- name: audit
-- Written in the transaction that makes the change, or not at all.
insert into sereno.audit (actor, action, subject, detail)
values (%(actor)s, %(action)s, %(subject)s, %(detail)s::text::jsonb);

-- name: pause
-- Who paused first stays on the record.
insert into sereno.pauses (kind, name, paused_by, note)
values (%(kind)s, %(name)s, %(actor)s, %(note)s)
on conflict (kind, name) do nothing
returning true;

-- name: resume
-- Sleeping workers are told, because what was held back is ready already.
with gone as (delete from sereno.pauses where kind = %(kind)s and name = %(name)s returning kind, name)
select pg_notify('sereno.ready', case when kind = 'queue' then name else '' end) from gone;

-- name: matching
-- The next jobs that a filter finds, by id, after the last one seen: a bulk change walks them in batches.
select id, state, task, tenant, unique_key from (
    select id, state, task, queue, tenant, created_at, null::timestamptz as finished_at, unique_key, tags,
           null::text as reason, null::text as error_type, null::text as error_message
    from sereno.jobs where %(live)s
    union all
    select id, state, task, queue, tenant, created_at, finished_at, unique_key, tags, reason, error_type, error_message
    from sereno.history where %(finished)s
) as every
where id > %(after)s
  and (%(ids)s::bigint[] is null or id = any(%(ids)s))
  and (%(states)s::text[] is null or state = any(%(states)s))
  and (%(queue)s::text is null or queue = %(queue)s)
  and (%(task)s::text is null or task = %(task)s)
  and (%(tenant)s::text is null or tenant = %(tenant)s)
  and (%(tag)s::text is null or tags @> array[%(tag)s::text])
  and (%(unique_key)s::text is null or unique_key = %(unique_key)s)
  and (%(created_after)s::timestamptz is null or created_at >= %(created_after)s)
  and (%(created_before)s::timestamptz is null or created_at < %(created_before)s)
  and (%(finished_after)s::timestamptz is null or finished_at >= %(finished_after)s)
  and (%(finished_before)s::timestamptz is null or finished_at < %(finished_before)s)
  and (%(error)s::text is null
       or strpos(lower(concat_ws(' ', reason, error_type, error_message)), lower(%(error)s)) > 0
       or exists (select from sereno.attempts tried
                  where tried.job_id = every.id
                    and strpos(lower(concat_ws(' ', tried.error_type, tried.error_message)), lower(%(error)s)) > 0))
order by id
limit %(limit)s;

-- name: tally
-- How many a filter finds, by task, queue and tenant; no more than the bound are looked at.
select task, queue, tenant, count(*) from (
    select task, queue, tenant from (
        select id, state, task, queue, tenant, created_at, null::timestamptz as finished_at, unique_key, tags,
               null::text as reason, null::text as error_type, null::text as error_message
        from sereno.jobs where %(live)s
        union all
        select id, state, task, queue, tenant, created_at, finished_at, unique_key, tags, reason, error_type,
               error_message
        from sereno.history where %(finished)s
    ) as every
    where (%(ids)s::bigint[] is null or id = any(%(ids)s))
      and (%(states)s::text[] is null or state = any(%(states)s))
      and (%(queue)s::text is null or queue = %(queue)s)
      and (%(task)s::text is null or task = %(task)s)
      and (%(tenant)s::text is null or tenant = %(tenant)s)
      and (%(tag)s::text is null or tags @> array[%(tag)s::text])
      and (%(unique_key)s::text is null or unique_key = %(unique_key)s)
      and (%(created_after)s::timestamptz is null or created_at >= %(created_after)s)
      and (%(created_before)s::timestamptz is null or created_at < %(created_before)s)
      and (%(finished_after)s::timestamptz is null or finished_at >= %(finished_after)s)
      and (%(finished_before)s::timestamptz is null or finished_at < %(finished_before)s)
      and (%(error)s::text is null
           or strpos(lower(concat_ws(' ', reason, error_type, error_message)), lower(%(error)s)) > 0
           or exists (select from sereno.attempts tried
                      where tried.job_id = every.id
                        and strpos(lower(concat_ws(' ', tried.error_type, tried.error_message)), lower(%(error)s)) > 0))
    limit %(bound)s + 1
) as found
group by task, queue, tenant
order by count(*) desc, task, queue, tenant;

-- name: postpone
-- Jobs that were requeued a moment ago in this transaction, moved behind the batches before theirs.
update sereno.jobs
set run_at = run_at + make_interval(secs => %(seconds)s), state = 'scheduled', ready_seq = null
where id = any(%(ids)s) and state in ('scheduled', 'ready')
returning id;
