-- The program's own tables. Safe to run again.
create schema if not exists reminders;

-- A reminder that cannot be sent would be found again for ever and block its batch: the checks refuse it.
create table if not exists reminders.reminders (
    id bigint generated always as identity primary key,
    person text not null check (length(person) between 1 and 200),
    title text not null check (length(title) between 1 and 200),
    asset text not null default '' check (length(asset) <= 200),
    -- The channel. A reminder with an unknown channel goes to the inbox.
    channel text not null default 'in_app' check (length(channel) <= 50),
    due_at timestamptz not null check (due_at >= '2000-01-01Z'),
    -- The due date that was queued, and the event of it. A reminder that is moved to another date is due again.
    queued_for timestamptz,
    event_id bigint
);

-- The search every five minutes reads due rows only, not the whole table.
create index if not exists reminders_to_find on reminders.reminders (due_at) where queued_for is distinct from due_at;

-- Dead deliveries that were put into the dead-letter queue. One that is requeued and dies again is put there again.
create table if not exists reminders.dead_letters (
    delivery_id bigint not null,
    died_at timestamptz not null,
    primary key (delivery_id, died_at)
);

create index if not exists dead_letters_died_at on reminders.dead_letters (died_at);
