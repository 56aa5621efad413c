-- What autoscalers read besides the list of queues.

-- name: due_jobs
-- Jobs that are due and that no worker has made ready, by queue, and the age of the oldest one: delayed jobs and retries,
-- while there is no worker. Of all queues together, a bounded number is read, in the order in which they are made ready.
select queue, count(*), extract(epoch from sereno.now() - min(run_at))::double precision
from (select queue, run_at from sereno.jobs where state = 'scheduled' and run_at <= sereno.now()
      order by run_at limit %(bound)s) as due
group by queue order by queue;
