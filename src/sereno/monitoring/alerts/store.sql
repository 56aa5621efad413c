-- Alert rules and alerts.

-- name: put_rule
-- Creates or replaces a rule. Its position in the log stays, as long as it matches the same lines. The code that declares a
-- rule does not overwrite changes of an operator.
insert into sereno.alert_rules as r (
    name, kinds, log, targets, level, tenant, queue, task, for_seconds, again_seconds, enabled, note, changed_by)
select name, kinds, log, targets, level, tenant, queue, task, for_seconds, again_seconds, enabled, note, %(actor)s
from jsonb_to_record(%(rule)s::text::jsonb) as given (
    name text, kinds text[], log jsonb, targets jsonb, level text, tenant text, queue text, task text,
    for_seconds double precision, again_seconds double precision, enabled boolean, note text)
on conflict (name) do update
set kinds = excluded.kinds, log = excluded.log, targets = excluded.targets, level = excluded.level,
    tenant = excluded.tenant, queue = excluded.queue, task = excluded.task, for_seconds = excluded.for_seconds,
    again_seconds = excluded.again_seconds, enabled = excluded.enabled, note = excluded.note,
    changed_at = sereno.now(), changed_by = excluded.changed_by, error = null, error_at = null,
    hits = case when r.log is not distinct from excluded.log then r.hits else '[]' end
where not %(is_code)s or r.changed_by = excluded.changed_by
returning name;

-- name: remove_rule
-- Deletes a rule.
delete from sereno.alert_rules where name = %(name)s returning name;

-- name: close_rule
-- Resolves the open alerts of a rule that was disabled or removed, without sending anything. Returns their number.
with closed as (
    update sereno.alerts set resolved_at = sereno.now() where rule = %(name)s and resolved_at is null returning true
)
select count(*) from closed;

-- name: rules
-- All rules, or one.
select row_to_json(found)::text
from (select name, kinds, log, targets, level, tenant, queue, task, for_seconds, again_seconds, enabled, note, created_at,
             changed_at, changed_by, error, error_at
      from sereno.alert_rules where %(name)s::text is null or name = %(name)s order by name limit %(most)s) as found
order by found.name;

-- name: watched
-- Enabled rules: their names and tenants.
select name, tenant from sereno.alert_rules where enabled order by name limit %(most)s;

-- name: lock_rule
-- A rule and the time. Locked, so that the second of two concurrent watchers sees what the first has sent.
select row_to_json(r)::text, sereno.now()
from (select name, kinds, log, targets, level, tenant, queue, task, for_seconds, again_seconds, enabled, note, hits,
             log_read, log_reached
      from sereno.alert_rules where name = %(name)s and enabled for update) as r;

-- name: note_error
-- Stores the error of a rule until its next successful evaluation.
update sereno.alert_rules set error = %(error)s, error_at = sereno.now() where name = %(name)s;

-- name: well
-- Clears the error of a rule.
update sereno.alert_rules set error = null, error_at = null where name = %(name)s and error is not null;

-- name: known
-- The open alerts of a rule, and those that were resolved within the hour.
select row_to_json(found)::text
from (select distinct on (kind, subject) id, kind, subject, level, opened_at, last_seen_at, notified_at, times, openings,
             resolved_at, silenced_until
      from (select * from sereno.alerts where rule = %(rule)s and resolved_at is null
            union all
            (select * from sereno.alerts
             where resolved_at > sereno.now() - interval '1 hour' and rule = %(rule)s
             order by resolved_at desc limit %(most)s)) as every
      order by kind, subject, resolved_at desc nulls first) as found;

-- name: log_hits
-- New log lines that match, and the id up to which the log was read. Lines about alerts match only a rule that names their
-- event: otherwise an alert would raise itself again.
with fresh as materialized (
    select id, at, level, event, tenant, queue, task from sereno.logs
    where id > coalesce(%(read)s::bigint, 0) order by id desc limit %(bound)s
)
select coalesce(max(id), %(read)s::bigint, 0),
       coalesce(json_agg(json_build_array(id, extract(epoch from at))) filter (
           where level = any(%(levels)s)
             and case when %(event)s::text is null then not starts_with(event, 'alert.') else event = %(event)s end
             and (%(tenant)s::text is null or tenant = %(tenant)s) and (%(queue)s::text is null or queue = %(queue)s)
             and (%(task)s::text is null or task = %(task)s)
             and at > sereno.now() - make_interval(secs => %(within)s)), '[]')::text
from fresh;

-- name: read_log
-- The ids up to which the last two evaluations read the log. Reading starts at the older one, to find lines that were
-- committed late.
update sereno.alert_rules set log_read = %(read)s, log_reached = %(reached)s, hits = %(hits)s::text::jsonb
where name = %(name)s;

-- name: open
-- Inserts new alerts.
insert into sereno.alerts (rule, kind, subject, level, sentence, details, words, remedy, notified_at, times)
select %(rule)s, kind, subject, level, sentence, details, words, remedy, case when notified then sereno.now() end, notified::integer
from jsonb_to_recordset(%(alerts)s::text::jsonb) as given (
    kind text, subject text, level text, sentence text, details jsonb, words text, remedy text, notified boolean)
returning id, kind, subject;

-- name: seen
-- Updates alerts that are still open, or that reopened.
update sereno.alerts
set level = given.level, sentence = given.sentence, details = given.details, words = given.words, remedy = given.remedy,
    last_seen_at = sereno.now(), opened_at = given.opened_at, openings = given.openings,
    notified_at = case when given.notified then sereno.now() when resolved_at is null then notified_at end,
    times = times + given.notified::integer, resolved_at = null, resolved_notified_at = null
from jsonb_to_recordset(%(alerts)s::text::jsonb) as given (
    id bigint, level text, sentence text, details jsonb, words text, remedy text, opened_at timestamptz, openings integer,
    notified boolean)
where alerts.id = given.id;

-- name: over
-- Resolves alerts.
update sereno.alerts
set resolved_at = sereno.now(), resolved_notified_at = case when id = any(%(notified)s::bigint[]) then sereno.now() end
where id = any(%(ids)s::bigint[]) and resolved_at is null;

-- name: forget
-- Deletes alerts that were never sent.
delete from sereno.alerts where id = any(%(ids)s::bigint[]);

-- name: forget_old
-- Deletes alerts that were resolved more than 90 days ago.
delete from sereno.alerts
where id in (select id from sereno.alerts where resolved_at < sereno.now() - interval '90 days' order by resolved_at limit 10000);

-- name: queue
-- A queue whose workers know the task that sends alerts; preferably the default queue.
select queue
from (select jsonb_object_keys(queues) as queue from sereno.sessions
      where state = 'alive' and lease_until > sereno.now() and %(task)s = any(tasks) limit 1000) as served
where not exists (select from sereno.pauses where kind = 'queue' and name = served.queue)
order by queue <> 'default', queue limit 1;

-- name: message
-- The target and the alert of a message.
select (targets -> %(target)s::integer)::text,
       (select row_to_json(found)::text
        from (select id, kind, subject, level, words, remedy, opened_at, resolved_at, times, details, sent from sereno.alerts
              where id = %(alert)s::bigint) as found)
from sereno.alert_rules where name = %(rule)s;

-- name: sent
-- Marks the message of a job as sent, so that the job does not send it again. The newest hundred are stored.
update sereno.alerts set sent = (%(job)s::bigint || sent)[1:100] where id = %(alert)s;

-- name: list
-- Alerts, newest first.
select row_to_json(found)::text
from (select id, rule, kind, subject, level, words, remedy, opened_at, last_seen_at, notified_at, times, openings, resolved_at,
             resolved_notified_at, silenced_until, silenced_by
      from sereno.alerts
      where (%(before)s::bigint is null or id < %(before)s) and (%(rule)s::text is null or rule = %(rule)s)
        and (%(open)s::boolean is null or (resolved_at is null) = %(open)s) and (%(id)s::bigint is null or id = %(id)s)
      order by id desc limit %(most)s) as found
order by found.id desc;

-- name: silence
-- Silences an open alert.
update sereno.alerts set silenced_until = %(until)s, silenced_by = %(actor)s
where id = %(id)s and resolved_at is null
returning id;
