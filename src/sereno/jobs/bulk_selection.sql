-- The jobs that a filter finds, for bulk changes.

-- name: matching
-- The next jobs that a filter finds, by id, after the last one seen: a bulk change processes them in batches.
select id from (
    (select id
    from sereno.jobs
    where %(live)s and id > %(after)s
      -- use: jobs.live_filter
    order by id limit %(limit)s)
    union all
    (select id
    from sereno.history
    where %(finished)s and id > %(after)s
      -- use: jobs.finished_filter
    order by id limit %(limit)s)
) as every
order by id
limit %(limit)s;

-- name: tally
-- How many jobs a filter finds, by task, queue and tenant; reads at most the bound of live and of finished jobs.
select task, queue, tenant, count(*) from (
    (select task, queue, tenant
    from sereno.jobs
    where %(live)s
      -- use: jobs.live_filter
    limit %(bound)s + 1)
    union all
    (select task, queue, tenant
    from sereno.history
    where %(finished)s
      -- use: jobs.finished_filter
    limit %(bound)s + 1)
) as found
group by task, queue, tenant
order by count(*) desc, task, queue, tenant;
