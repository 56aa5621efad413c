-- Jobs that are left for a worker of another release.

-- name: waiting_since
-- The other releases among workers that know the task, and how long ago the job was first left for one: not counting what
-- was before it became a dead letter and was retried. A worker that ended a moment ago counts, because its restart may be
-- under way. Workers in other languages have no release.
select coalesce((select array_agg(distinct coalesce(release, 'none'))
                 from sereno.sessions
                 where (state = 'alive' or ended_at > sereno.now() - make_interval(secs => %(restart)s)) and opened_by is null
                   and release is distinct from %(release)s and queues ? %(queue)s and %(task)s = any(tasks)), '{}'),
       coalesce((select extract(epoch from sereno.now() - min(started_at))::double precision
                 from sereno.attempts
                 where job_id = %(id)s and outcome = 'release'
                   and starts_with(reason, 'left for a worker of another release')
                   and number > coalesce((select max(number) from sereno.attempts
                                          where job_id = %(id)s and outcome = 'dead'), 0)), 0);
