-- Figures of notifications, so that nobody has to count deliveries: whoever changes them adds up what changed, and writes
-- it down a few times a minute. And what is found by its trace.

-- How many deliveries came into a state in an hour. `matched` is every delivery that was made, `pending` those of them with
-- nothing against, `tried` those that were given to a provider, once each; `retried` and `held` wait for another try, or for the
-- end of quiet hours. `reason`: one of a few words.
create table sereno.delivery_hours (
    hour     timestamptz not null,
    event    text not null,
    channel  text not null,
    state    text not null,
    reason   text not null default '',
    count    integer not null,
    primary key (hour, event, channel, state, reason)
) with (fillfactor = 70);

-- The same for each tenant, without the kind of event and the reason: as many rows as tenants that were told something.
create table sereno.delivery_tenant_hours (
    tenant     text not null,
    hour       timestamptz not null,
    channel    text not null,
    matched    integer not null default 0,
    eligible   integer not null default 0,
    skipped    integer not null default 0,
    sent       integer not null default 0,
    accepted   integer not null default 0,
    delivered  integer not null default 0,
    read       integer not null default 0,
    failed     integer not null default 0,
    primary key (tenant, hour, channel)
) with (fillfactor = 70);
-- By which the old ones are found; they lie in the order in which they came.
create index delivery_tenant_hours_old on sereno.delivery_tenant_hours using brin (hour);

-- How a provider fares: messages given to it, what it said, and how long receipts took, by the buckets of
-- sereno.telemetry.metrics, and beyond. `account`: whose credentials; empty for the house's.
create table sereno.channel_minutes (
    minute     timestamptz not null,
    channel    text not null,
    account    text not null,
    sent       integer not null default 0,
    accepted   integer not null default 0,
    throttled  integer not null default 0,
    failed     integer not null default 0,
    unknown    integer not null default 0,
    receipts   integer[] not null,
    primary key (minute, channel, account)
) with (fillfactor = 70);

-- Its words for what went wrong; a worker tells apart no more than a few at a time.
create table sereno.channel_codes (
    minute   timestamptz not null,
    channel  text not null,
    account  text not null,
    code     text not null,
    count    integer not null,
    primary key (minute, channel, account, code)
) with (fillfactor = 70);

-- An event may carry the trace of what made it true.
alter table sereno.events add column trace text;

-- Who has no trace pays nothing for these. A number stands for the text: it is a third as long, and SQL may write longer
-- texts than an index takes.
create index jobs_trace on sereno.jobs (hashtext(trace), id) where trace is not null;
create index history_trace on sereno.history (hashtext(trace), id) where trace is not null;
create index events_trace on sereno.events (hashtext(trace), id) where trace is not null;
create index events_subject on sereno.events (subject, id) where subject is not null;
