-- The read contract: views for reports, runbooks and BI tools, while the tables behind them may change. A column of a _v1
-- view is never removed, renamed or changed in meaning or type; new ones are added at the end, with `create or replace
-- view`, which keeps the privileges that users have granted. The views call no functions of this schema, so that a role
-- needs no privilege other than select on them.

-- Live and finished jobs. Both parts read one table without a condition and without subqueries: the planner then treats
-- them like a partitioned table, and leaves out those that a condition on `state` or `finished_at` excludes. Each join
-- finds at most one row, also that of the last attempt, because max() has no groups: a query that does not read its
-- columns is planned without it.
create view sereno.jobs_v1 as
select every.id, every.task, every.queue, every.state, every.priority, every.tenant, every.tags, every.trace, every.args,
       every.unique_key, every.attempt, every.failures, every.crashes, every.snoozes, every.releases,
       every.run_at, every.created_at, every.started_at, every.finished_at, every.expires_at, every.cancel_requested,
       every.session_id, sessions.host, sessions.pid,
       coalesce(every.reason, last.reason) as reason, coalesce(every.error_type, last.error_type) as error_type,
       coalesce(every.error_message, last.error_message) as error_message, every.result, every.group_id,
       every.schedule_id, schedules.key::text as schedule, every.planned_at, every.stands_for, every.keys, every.requires
from (
    select id, task, queue, state, priority, tenant, tags, trace, args::jsonb as args, unique_key,
           attempt, failures, crashes, snoozes, releases, run_at, created_at,
           case when state = 'running' then claimed_at end as started_at, null::timestamptz as finished_at, expires_at,
           cancel_requested, session_id, null::text as reason, null::text as error_type, null::text as error_message,
           null::jsonb as result, group_id, schedule_id, planned_at, stands_for, keys, requires
    from sereno.jobs
    union all
    select id, task, queue, state, priority, tenant, tags, trace, args, unique_key,
           attempt, failures, crashes, snoozes, releases, run_at, created_at,
           started_at, finished_at, expires_at,
           false, session_id, reason, error_type, error_message,
           result, group_id, schedule_id, planned_at, stands_for, keys, requires
    from sereno.history
) as every
left join lateral (
    select max(reason) as reason, max(error_type) as error_type, max(error_message) as error_message
    from (select reason, error_type, error_message from sereno.attempts
          where every.finished_at is null and attempts.job_id = every.id
            -- No attempt is older than its job, so earlier partitions are not read. One day of tolerance for a clock set back.
            and attempts.partition_at >= every.created_at - interval '1 day'
          order by number desc limit 1) as newest
) as last on true
left join sereno.sessions on sessions.id = every.session_id
left join sereno.schedules on schedules.id = every.schedule_id;

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
       fired, missed_count, succeeded, failed, failed_in_row, skipped, requires
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
       (select receipt_id from sereno.receipts where delivery_id = d.id order by receipts.id desc limit 1) as receipt_id, d.job_id, d.unknowns
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

-- docs/reference/sql-views.md is made of these comments.
comment on view sereno.jobs_v1 is
    'Live jobs and the history, one row per job, until it is deleted or archived. A condition on finished_at limits how much of '
    'the history is read.';
comment on column sereno.jobs_v1.id is 'never reused';
comment on column sereno.jobs_v1.task is 'name of the task';
comment on column sereno.jobs_v1.queue is 'queue that it waits in';
comment on column sereno.jobs_v1.state is 'waiting (for other jobs), scheduled, ready, running; succeeded, dead, cancelled';
comment on column sereno.jobs_v1.priority is '0 (first) to 9';
comment on column sereno.jobs_v1.tenant is 'null: none';
comment on column sereno.jobs_v1.tags is 'null: none';
comment on column sereno.jobs_v1.trace is 'id of the trace that it belongs to';
comment on column sereno.jobs_v1.args is 'arguments, an object; encrypted ones are ciphertext';
comment on column sereno.jobs_v1.unique_key is 'while the job lives, no other one of its task and tenant has the same';
comment on column sereno.jobs_v1.attempt is 'number of its last attempt; 0: none yet';
comment on column sereno.jobs_v1.failures is 'attempts that failed';
comment on column sereno.jobs_v1.crashes is 'attempts whose worker process died';
comment on column sereno.jobs_v1.snoozes is 'attempts that asked to be continued later';
comment on column sereno.jobs_v1.releases is 'attempts that a worker returned, for example on shutdown';
comment on column sereno.jobs_v1.run_at is 'due; after a failure, the next attempt';
comment on column sereno.jobs_v1.created_at is 'enqueued';
comment on column sereno.jobs_v1.started_at is
    'start of the last attempt, of a running job when it was claimed; null: it does not run and has not finished, or it never started';
comment on column sereno.jobs_v1.finished_at is 'null: live';
comment on column sereno.jobs_v1.expires_at is 'cancelled if it has not started by then';
comment on column sereno.jobs_v1.cancel_requested is 'it is running, and was told to stop';
comment on column sereno.jobs_v1.session_id is 'session that runs it, or ran its last attempt';
comment on column sereno.jobs_v1.host is 'host of that session; null a week after the session has ended';
comment on column sereno.jobs_v1.pid is 'process id of that session';
comment on column sereno.jobs_v1.reason is 'why its last attempt ended as it did; of a live job, the last one that has ended';
comment on column sereno.jobs_v1.error_type is 'class of the error of that attempt';
comment on column sereno.jobs_v1.error_message is 'message of the error of that attempt';
comment on column sereno.jobs_v1.result is 'what the task returned, if it keeps results; null otherwise';
comment on column sereno.jobs_v1.group_id is 'group that it belongs to';
comment on column sereno.jobs_v1.schedule_id is 'schedule that made it; indexed';
comment on column sereno.jobs_v1.schedule is 'key of that schedule; null if the schedule was deleted';
comment on column sereno.jobs_v1.planned_at is 'instant of the schedule that it stands for';
comment on column sereno.jobs_v1.stands_for is 'number of instants that it stands for: itself and the missed ones before it';
comment on column sereno.jobs_v1.keys is
    'its limits (name, key and units of each), fair and order keys, and blocks: a dead letter that blocks its order key';
comment on column sereno.jobs_v1.requires is 'what its worker must have: a version of the task, the key of its encrypted arguments';

comment on view sereno.attempts_v1 is
    'Every attempt of every job of jobs_v1, one row for each, the running ones included. A job that succeeded at the first '
    'attempt has one, if its task keeps its successes.';
comment on column sereno.attempts_v1.job_id is 'jobs_v1.id';
comment on column sereno.attempts_v1.number is '1, 2, 3 …; never reused';
comment on column sereno.attempts_v1.session_id is 'session that ran it';
comment on column sereno.attempts_v1.started_at is 'started; while it runs, when it was claimed';
comment on column sereno.attempts_v1.finished_at is 'null: running';
comment on column sereno.attempts_v1.outcome is 'running; retry, snooze, release, crash; succeeded, dead, cancelled';
comment on column sereno.attempts_v1.reason is 'why it ended so';
comment on column sereno.attempts_v1.error_type is 'class of the error';
comment on column sereno.attempts_v1.error_message is 'message of the error';

comment on view sereno.sessions_v1 is 'One row per run of a worker process; deleted a week after its end.';
comment on column sereno.sessions_v1.id is 'jobs_v1.session_id';
comment on column sereno.sessions_v1.state is 'alive, closed, dead';
comment on column sereno.sessions_v1.host is 'host name';
comment on column sereno.sessions_v1.pid is 'process id';
comment on column sereno.sessions_v1.version is 'version of sereno';
comment on column sereno.sessions_v1.release is 'release of its code, if it names one';
comment on column sereno.sessions_v1.started_at is 'started';
comment on column sereno.sessions_v1.seen_at is 'last heartbeat';
comment on column sereno.sessions_v1.lease_until is 'after that, other workers take over its jobs';
comment on column sereno.sessions_v1.ended_at is 'null: alive';

comment on view sereno.schedules_v1 is 'One row per schedule, with its job, its policies and the results of its runs.';
comment on column sereno.schedules_v1.id is 'jobs_v1.schedule_id, fires_v1.schedule_id';
comment on column sereno.schedules_v1.key is 'unique name';
comment on column sereno.schedules_v1.state is 'enabled, paused, disabled (after failures), parked (its rule is invalid), finished';
comment on column sereno.schedules_v1.next_run_at is 'next instant; null: none is planned';
comment on column sereno.schedules_v1.rule is 'when: an object; its kind is once, every, cron or daily';
comment on column sereno.schedules_v1.task is 'task of its jobs';
comment on column sereno.schedules_v1.queue is 'queue of its jobs';
comment on column sereno.schedules_v1.priority is 'priority of its jobs';
comment on column sereno.schedules_v1.tenant is 'null: none';
comment on column sereno.schedules_v1.tags is 'tags of its jobs';
comment on column sereno.schedules_v1.trace is 'trace of its jobs';
comment on column sereno.schedules_v1.args is 'arguments of its jobs; fields such as {fire:%Y-%m} are filled in for each';
comment on column sereno.schedules_v1.unique_key is 'unique key of its jobs';
comment on column sereno.schedules_v1.missed is 'what it does about missed instants: skip, latest, all';
comment on column sereno.schedules_v1.overlap is 'what it does while a run is under way: skip, allow, queue_one, cancel_previous';
comment on column sereno.schedules_v1.max_lateness is 'seconds; later instants are skipped';
comment on column sereno.schedules_v1.disable_after is 'disabled after that many failed runs in a row';
comment on column sereno.schedules_v1.starts_at is 'no instant before then';
comment on column sereno.schedules_v1.ends_at is 'no instant after then';
comment on column sereno.schedules_v1.max_fires is 'finished after that many fires';
comment on column sereno.schedules_v1.paused_until is 'an enabled schedule is paused until then';
comment on column sereno.schedules_v1.note is 'why it is paused, disabled or parked';
comment on column sereno.schedules_v1.changed_by is 'user or program that changed it last';
comment on column sereno.schedules_v1.declared_by is 'service whose code declares it; null: created at run time';
comment on column sereno.schedules_v1.created_at is 'created';
comment on column sereno.schedules_v1.changed_at is 'changed by a user or a program';
comment on column sereno.schedules_v1.last_planned_at is 'last instant that fired';
comment on column sereno.schedules_v1.last_fired_at is 'when that fired';
comment on column sereno.schedules_v1.last_job_id is 'the job that it made';
comment on column sereno.schedules_v1.last_finished_at is 'end of the last run that has ended';
comment on column sereno.schedules_v1.last_state is 'state in which that run ended';
comment on column sereno.schedules_v1.last_error is 'error of that run';
comment on column sereno.schedules_v1.fired is 'number of fires';
comment on column sereno.schedules_v1.missed_count is 'number of instants that were missed';
comment on column sereno.schedules_v1.succeeded is 'number of runs that succeeded';
comment on column sereno.schedules_v1.failed is 'number of runs that failed';
comment on column sereno.schedules_v1.failed_in_row is 'number of failed runs since the last success';
comment on column sereno.schedules_v1.skipped is 'number of skipped instants by reason, an object';
comment on column sereno.schedules_v1.requires is 'what the workers of its jobs must have, as in jobs_v1';

comment on view sereno.fires_v1 is
    'Instants of schedules: each has made a job, or was skipped. A condition on planned_at limits how much is read.';
comment on column sereno.fires_v1.planned_at is 'the instant; unique for each schedule';
comment on column sereno.fires_v1.schedule_id is 'schedules_v1.id';
comment on column sereno.fires_v1.schedule is 'key of the schedule; null if it was deleted';
comment on column sereno.fires_v1.tenant is 'tenant of the schedule';
comment on column sereno.fires_v1.fired_at is 'when it fired or was skipped';
comment on column sereno.fires_v1.job_id is 'the job; of a skipped duplicate, the job that holds the unique key';
comment on column sereno.fires_v1.stands_for is 'number of instants that it stands for: itself and the missed or skipped ones before it';
comment on column sereno.fires_v1.reason is 'why it was skipped; null: it fired';

comment on view sereno.events_v1 is 'One row per event, until it is deleted or archived.';
comment on column sereno.events_v1.id is 'deliveries_v1.event_id';
comment on column sereno.events_v1.type is 'type of the event';
comment on column sereno.events_v1.tenant is 'null: none';
comment on column sereno.events_v1.subject is 'what it is about; indexed';
comment on column sereno.events_v1.key is 'idempotency key: an event of the same type, tenant, subject and key is written once';
comment on column sereno.events_v1.category is 'category for preferences';
comment on column sereno.events_v1.payload is 'an object';
comment on column sereno.events_v1.channels is 'channels by which it is sent';
comment on column sereno.events_v1.audience is 'keys of the named recipients; null: everyone who wants it';
comment on column sereno.events_v1.critical is 'preferences, quiet hours and throttles do not apply';
comment on column sereno.events_v1.opt_in is 'only recipients whose preference wants it get it';
comment on column sereno.events_v1.due_at is 'not sent before then';
comment on column sereno.events_v1.expires_at is 'not sent after then';
comment on column sereno.events_v1.created_at is 'written';
comment on column sereno.events_v1.matched_at is 'all its deliveries had been made; null: not yet';
comment on column sereno.events_v1.note is 'problem with the event, such as an unknown channel or a payload of the wrong shape';
comment on column sereno.events_v1.trace is 'id of the trace that it belongs to';

comment on view sereno.deliveries_v1 is
    'One row per event, recipient, channel and address, until it is deleted or archived. Addresses are in addresses_v1 only.';
comment on column sereno.deliveries_v1.id is 'never reused';
comment on column sereno.deliveries_v1.event_id is 'events_v1.id; indexed';
comment on column sereno.deliveries_v1.event is 'type of the event; null if it was deleted, as the next two';
comment on column sereno.deliveries_v1.subject is 'subject of the event; indexed';
comment on column sereno.deliveries_v1.event_key is 'idempotency key of the event';
comment on column sereno.deliveries_v1.recipient_id is 'recipients_v1.id; indexed';
comment on column sereno.deliveries_v1.recipient is 'key of the recipient; null if it was deleted';
comment on column sereno.deliveries_v1.tenant is 'null: none';
comment on column sereno.deliveries_v1.channel is 'in_app, email, …: also the kind of the address';
comment on column sereno.deliveries_v1.account is 'tenant whose account with the provider is used; null: the one of the code';
comment on column sereno.deliveries_v1.address_id is 'addresses_v1.id; null: the recipient has none, or in-app';
comment on column sereno.deliveries_v1.state is
    'pending, sending, sent, delivered, read; skipped, failed, bounced, invalid, expired, dead; unknown (it may have been sent)';
comment on column sereno.deliveries_v1.reason is 'why it is in that state';
comment on column sereno.deliveries_v1.attempts is 'number of times that it was given to the provider';
comment on column sereno.deliveries_v1.due_at is 'next attempt, or the last one';
comment on column sereno.deliveries_v1.expires_at is 'not sent after then';
comment on column sereno.deliveries_v1.created_at is 'created';
comment on column sereno.deliveries_v1.changed_at is 'last change of the state';
comment on column sereno.deliveries_v1.sent_at is 'last accepted by the provider';
comment on column sereno.deliveries_v1.delivered_at is
    'delivered, in the states delivered and read; of a read one whose delivery the provider did not report, when it was read';
comment on column sereno.deliveries_v1.read_at is 'read, in the state read';
comment on column sereno.deliveries_v1.completed_at is
    'sereno had done its part: sent_at in the states sent, delivered and read, changed_at in the states skipped, failed, bounced, '
    'invalid, expired and dead; null: pending, sending or unknown';
comment on column sereno.deliveries_v1.error_code is 'code of the last error, as the provider reports it';
comment on column sereno.deliveries_v1.error_message is 'message of the last error';
comment on column sereno.deliveries_v1.provider_id is 'id of the message at the provider';
comment on column sereno.deliveries_v1.receipt_id is 'id of the newest receipt of the provider';
comment on column sereno.deliveries_v1.job_id is 'job that is sending it';
comment on column sereno.deliveries_v1.unknowns is 'attempts with an unknown outcome; above 0: it may have arrived twice';

comment on view sereno.receipts_v1 is 'Receipts that providers reported with an id, one row for each and each delivery.';
comment on column sereno.receipts_v1.id is 'in the order in which they came';
comment on column sereno.receipts_v1.delivery_id is 'deliveries_v1.id; indexed';
comment on column sereno.receipts_v1.channel is 'channel';
comment on column sereno.receipts_v1.receipt_id is 'id at the provider';
comment on column sereno.receipts_v1.outcome is 'delivered, read, bounced, failed, invalid, retry, down';
comment on column sereno.receipts_v1.code is 'code of the provider';
comment on column sereno.receipts_v1.at is 'when it came';

comment on view sereno.recipients_v1 is 'One row per recipient.';
comment on column sereno.recipients_v1.id is 'deliveries_v1.recipient_id';
comment on column sereno.recipients_v1.key is 'key of the application; unique in its tenant';
comment on column sereno.recipients_v1.tenant is 'null: none';
comment on column sereno.recipients_v1.locale is 'language of messages';
comment on column sereno.recipients_v1.zone is 'time zone, for quiet hours';
comment on column sereno.recipients_v1.data is 'what the application stored, an object';
comment on column sereno.recipients_v1.created_at is 'created';
comment on column sereno.recipients_v1.changed_at is 'last changed';

comment on view sereno.addresses_v1 is 'One row per address of a recipient. Its secret keys are not shown.';
comment on column sereno.addresses_v1.id is 'deliveries_v1.address_id';
comment on column sereno.addresses_v1.recipient_id is 'recipients_v1.id; indexed';
comment on column sereno.addresses_v1.recipient is 'key of the recipient';
comment on column sereno.addresses_v1.tenant is 'tenant of the recipient; null: none';
comment on column sereno.addresses_v1.channel is 'channel that it is for';
comment on column sereno.addresses_v1.address is 'address itself: a device token, an e-mail address, a phone number, a URL';
comment on column sereno.addresses_v1.has_keys is 'it has secret keys';
comment on column sereno.addresses_v1.state is 'active, unverified, invalid, unsubscribed';
comment on column sereno.addresses_v1.reason is 'why it is not active';
comment on column sereno.addresses_v1.created_at is 'created';
comment on column sereno.addresses_v1.changed_at is 'last changed';

-- The allow-list of procedures, without the signatures.
create view sereno.procedures_v1 as
select target, signature ->> 'schema' as schema, signature ->> 'name' as name, signature ->> 'kind' as kind,
       given, timeout, lock_timeout, note, allowed_by, allowed_at
from sereno.procedures;

comment on view sereno.procedures_v1 is 'One row per procedure that jobs may call.';
comment on column sereno.procedures_v1.target is 'database that has it; here: the one of this schema';
comment on column sereno.procedures_v1.schema is 'its schema';
comment on column sereno.procedures_v1.name is 'its name in the schema';
comment on column sereno.procedures_v1.kind is 'procedure or function';
comment on column sereno.procedures_v1.given is 'parameters that are filled from the job and that no caller can set, an object: {"run": "job"}';
comment on column sereno.procedures_v1.timeout is 'longest call, in seconds';
comment on column sereno.procedures_v1.lock_timeout is 'longest wait for a lock, in seconds';
comment on column sereno.procedures_v1.note is 'note of the operator';
comment on column sereno.procedures_v1.allowed_by is 'user or program that allowed it';
comment on column sereno.procedures_v1.allowed_at is 'allowed';
