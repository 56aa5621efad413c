-- The program's own table. Safe to run again.
create schema if not exists reminders;

-- What could not be told would be found for ever, and hold up the others of its batch: it is refused here.
create table if not exists reminders.reminders (
    id bigint generated always as identity primary key,
    person text not null check (length(person) between 1 and 200),
    title text not null check (length(title) between 1 and 200),
    asset text not null default '' check (length(asset) <= 200),
    -- By which channel it is to be told. One that does not exist is told in the application.
    channel text not null default 'in_app' check (length(channel) <= 50),
    due_at timestamptz not null check (due_at >= '2000-01-01Z'),
    -- The due date and the channel that were handed over. A reminder that is moved to another date is due once more.
    queued_for timestamptz,
    queued_by text
);

-- Looking every five minutes costs what is due, not what exists.
create index if not exists reminders_to_find on reminders.reminders (due_at) where queued_for is distinct from due_at;
