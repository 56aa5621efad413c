-- The read contract: views for reports, runbooks and BI tools, while the tables behind them may change. A column of a _v1
-- view is never removed, renamed or changed in meaning or type; new ones are added at the end, with `create or replace
-- view`, which keeps the privileges that users have granted. The views call no functions of this schema, so that a role
-- needs no privilege other than select on them. A column that needs another table is a subquery or a left join by
-- primary key: it costs nothing in a query that does not read it, and the conditions of a query reach the indexes.

-- Live and finished jobs. Both parts read one table without a condition of their own: the planner then treats the view
-- like a partitioned table, and leaves out the parts that a condition on `state` or `finished_at` excludes.
create view sereno.jobs_v1 as
select id, task, queue, state, priority, tenant, tags, trace, args::jsonb as args, unique_key,
       attempt, failures, crashes, snoozes, releases,
       run_at, created_at, case when state = 'running' then claimed_at end as started_at, null::timestamptz as finished_at, expires_at,
       cancel_requested, session_id,
       (select host from sereno.sessions where sessions.id = jobs.session_id) as host,
       (select pid from sereno.sessions where sessions.id = jobs.session_id) as pid,
       -- No attempt is older than its job, so earlier partitions are not read. One day of tolerance for a clock set back.
       (select reason from sereno.attempts
        where job_id = jobs.id and partition_at >= jobs.created_at - interval '1 day' order by number desc limit 1) as reason,
       (select error_type from sereno.attempts
        where job_id = jobs.id and partition_at >= jobs.created_at - interval '1 day' order by number desc limit 1) as error_type,
       (select error_message from sereno.attempts
        where job_id = jobs.id and partition_at >= jobs.created_at - interval '1 day' order by number desc limit 1) as error_message,
       null::jsonb as result,
       group_id, schedule_id, (select key from sereno.schedules where schedules.id = schedule_id)::text as schedule, planned_at, stands_for
from sereno.jobs
union all
select id, task, queue, state, priority, tenant, tags, trace, args, unique_key,
       attempt, failures, crashes, snoozes, releases,
       run_at, created_at, started_at, finished_at, expires_at,
       false, session_id,
       (select host from sereno.sessions where sessions.id = history.session_id),
       (select pid from sereno.sessions where sessions.id = history.session_id),
       reason, error_type, error_message, result,
       group_id, schedule_id, (select key from sereno.schedules where schedules.id = schedule_id)::text, planned_at, stands_for
from sereno.history;

-- All attempts: the running ones, those that ended, and the last one of each finished job, which is its history row.
create view sereno.attempts_v1 as
select job_id, number, session_id, started_at, finished_at, outcome, reason, error_type, error_message
from sereno.attempts
union all
select id, attempt, session_id, claimed_at, null::timestamptz, 'running'::text, null::text, null::text, null::text
from sereno.jobs where state = 'running'
union all
select id, attempt, session_id, started_at, finished_at, state, reason, error_type, error_message
from sereno.history where session_id is not null and started_at is not null;

create view sereno.sessions_v1 as
select id, state, host, pid, version, release, started_at, seen_at, lease_until, ended_at
from sereno.sessions;

create view sereno.schedules_v1 as
select id, key::text as key, state, next_run_at, rule, task, queue, priority, tenant, tags, trace, args::jsonb as args, unique_key,
       missed, overlap, max_lateness, disable_after, starts_at, ends_at, max_fires, paused_until, note, changed_by, declared_by,
       created_at, changed_at, last_planned_at, last_fired_at, last_job_id, last_finished_at, last_state, last_error,
       fired, missed_count, succeeded, failed, failed_in_row, skipped
from sereno.schedules;

create view sereno.fires_v1 as
select fires.planned_at, fires.schedule_id, schedules.key::text as schedule, schedules.tenant, fires.fired_at, fires.job_id,
       fires.stands_for, fires.reason
from sereno.fires left join sereno.schedules on schedules.id = fires.schedule_id;

create view sereno.events_v1 as
select id, type, nullif(tenant, '') as tenant, subject, key, category, payload::jsonb as payload, channels, audience, critical, opt_in,
       due_at, expires_at, created_at, matched_at, note, trace
from sereno.events;

-- `completed_at`, `delivered_at`, `read_at`: derived from the state and its instant. Only a message that was read has left
-- the state `delivered`: then the receipt of that has the instant, or the inbox.
create view sereno.deliveries_v1 as
select d.id, d.event_id, e.type as event, e.subject, e.key as event_key, d.recipient_id, r.key as recipient,
       nullif(d.tenant, '') as tenant, d.channel, nullif(d.account, '') as account, d.address_id,
       d.state, d.reason, d.attempts, d.due_at, d.expires_at, d.created_at, d.changed_at, d.sent_at,
       case d.state
           when 'delivered' then d.changed_at
           when 'read' then coalesce((select min(at) from sereno.receipts where delivery_id = d.id and outcome = 'delivered'),
                                     (select inbox.created_at from sereno.inbox where delivery_id = d.id), d.changed_at)
       end as delivered_at,
       case d.state when 'read' then d.changed_at end as read_at,
       case when d.state in ('sent', 'delivered', 'read') then coalesce(d.sent_at, d.changed_at)
            when d.state in ('bounced', 'skipped', 'failed', 'invalid', 'expired', 'dead') then d.changed_at
       end as completed_at,
       d.error_code, d.error_message, d.provider_id,
       (select receipt_id from sereno.receipts where delivery_id = d.id order by receipts.id desc limit 1) as receipt_id, d.job_id
from sereno.deliveries d
left join sereno.events e on e.id = d.event_id
left join sereno.recipients r on r.id = d.recipient_id;

create view sereno.receipts_v1 as
select id, delivery_id, channel, receipt_id, outcome, code, at
from sereno.receipts;

create view sereno.recipients_v1 as
select id, key, nullif(tenant, '') as tenant, locale, zone, data, created_at, changed_at
from sereno.recipients;

-- Without `keys`, which can hold secrets.
create view sereno.addresses_v1 as
select a.id, a.recipient_id, r.key as recipient, nullif(r.tenant, '') as tenant, a.channel, a.address, a.keys is not null as has_keys,
       a.state, a.reason, a.created_at, a.changed_at
from sereno.addresses a left join sereno.recipients r on r.id = a.recipient_id;

-- The allow-list. `given`: the parameters that are filled from the job. The timeouts are seconds.
create view sereno.procedures_v1 as
select target, signature ->> 'schema' as schema, signature ->> 'name' as name, signature ->> 'kind' as kind,
       given, timeout, lock_timeout, note, allowed_by, allowed_at
from sereno.procedures;
