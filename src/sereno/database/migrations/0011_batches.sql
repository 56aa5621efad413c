-- Deliveries that wait to be sent, or to be asked about, are queued as batches, not one by one: a hundred of them are one
-- row that comes and goes. What changes of a delivery is in no index any more, so that a change of state stays on its page.

-- A delivery that is `pending` or `sending` is in a batch to `send`; one whose provider can be asked, in one to `ask`. The row
-- of the delivery is the truth: what a batch names and is no longer waiting is passed over.
create table sereno.batches (
    id          bigint generated always as identity primary key,
    purpose     text not null check (purpose in ('send', 'ask')),
    channel     text not null,
    account     text not null,
    due_at      timestamptz not null,
    -- Who is sending them, and since when.
    job_id      bigint,
    taken_at    timestamptz,
    -- Nobody is asked any more after that.
    ends_at     timestamptz,
    -- Some of them belong into one message with others.
    gathers     boolean not null default false,
    deliveries  bigint[] not null
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

create index batches_due on sereno.batches (purpose, channel, account, due_at, id) where job_id is null;
create index batches_gathering on sereno.batches (channel, account, due_at) where gathers and job_id is null;
create index batches_taken on sereno.batches (channel, account) where job_id is not null;

-- By which names a provider knows our messages, where it tells us by itself what became of them.
create table sereno.message_ids (
    channel      text not null,
    account      text not null,
    provider_id  text not null,
    delivery_id  bigint not null,
    primary key (channel, account, provider_id, delivery_id)
);

-- What a provider told of a message before we had written down that it has it. Kept for a few minutes.
create table sereno.early_receipts (
    id           bigint generated always as identity primary key,
    channel      text not null,
    account      text not null,
    provider_id  text not null,
    receipt      jsonb not null,
    at           timestamptz not null default sereno.now()
);

insert into sereno.batches (purpose, channel, account, due_at, gathers, deliveries)
select 'send', channel, account, due_at, bool_or(digest is not null), array_agg(id order by id)
from (select id, digest, channel, account, due_at, (row_number() over (partition by channel, account, due_at order by id) - 1) / 100 as part
      from sereno.deliveries where state = 'pending') as waiting
group by channel, account, due_at, part;

update sereno.deliveries set job_id = 0 where state = 'sending' and job_id is null;

insert into sereno.batches (purpose, channel, account, due_at, job_id, taken_at, deliveries)
select 'send', channel, account, min(due_at), job_id, max(changed_at), array_agg(id order by id)
from sereno.deliveries where state = 'sending'
group by channel, account, job_id;

insert into sereno.batches (purpose, channel, account, due_at, ends_at, deliveries)
select 'ask', channel, account, max(receipt_at), max(sent_at) + interval '1 day', array_agg(id order by id)
from (select *, (row_number() over (partition by channel, account order by receipt_at, id) - 1) / 100 as part
      from sereno.deliveries where receipt_at is not null) as asked
group by channel, account, part;

insert into sereno.message_ids (channel, account, provider_id, delivery_id)
select channel, account, provider_id, id from sereno.deliveries where provider_id is not null;

-- What somebody's messages are gathered from; its columns never change.
create index deliveries_gathered on sereno.deliveries (recipient_id, digest, id) where digest is not null;

drop index sereno.deliveries_due;
drop index sereno.deliveries_sending;
drop index sereno.deliveries_receipts;
drop index sereno.deliveries_provider;
alter table sereno.deliveries set (fillfactor = 50);

-- The next batches of a channel, so many deliveries at most; none of a channel that is paused. The last one is split where it
-- does not fit: fewer than asked for means that nothing more is due, and whoever takes them relies on it.
-- With `again`, they stay where they are and are due again then; without, they belong to the job until it ends them.
create function sereno.take_batches(
    of_purpose text, by_channel text, of_account text, by_job bigint, most integer, again interval default null
) returns table (batch bigint, ids bigint[])
    language plpgsql as $$
declare
    waiting cursor for
        select b.id, b.deliveries, b.due_at, b.ends_at, b.gathers from sereno.batches b
        where b.purpose = of_purpose and b.channel = by_channel and b.account = of_account and b.job_id is null
          and b.due_at <= sereno.now()
        order by b.due_at, b.id
        for update skip locked;
    found_one record;
    room integer := most;
    waited boolean := false;
    in_hands bigint;
    taken bigint[] := '{}';
begin
    if exists (select from sereno.channel_pauses p where p.channel = by_channel and p.account in ('', of_account)) then
        return;
    end if;
    -- What is gathered is looked for by one at a time: two would make two messages of it.
    if of_purpose = 'send' and exists (select from sereno.batches b where b.gathers and b.job_id is null and b.channel = by_channel
                 and b.account = of_account and b.due_at <= sereno.now()) then
        perform pg_advisory_xact_lock(hashtext('sereno gathers by ' || by_channel), hashtext(of_account));
    end if;
    loop
        -- A row that was taken and committed after the cursor's snapshot is locked, and only then found to belong to another
        -- job; `skip locked` does not help there. Held while this transaction waits, such locks met those of the jobs that
        -- own these batches, and that was a deadlock. So whoever found nothing gives back every lock before it waits, waits
        -- for one batch, and gives that back too.
        begin
            open waiting;
            while room > 0 loop
                fetch waiting into found_one;
                exit when not found;
                batch := found_one.id;
                ids := found_one.deliveries[:room];
                if cardinality(found_one.deliveries) > room then
                    update sereno.batches b set deliveries = found_one.deliveries[room + 1:] where b.id = found_one.id;
                    insert into sereno.batches (purpose, channel, account, due_at, ends_at, gathers, deliveries)
                    values (of_purpose, by_channel, of_account, found_one.due_at, found_one.ends_at, found_one.gathers, ids)
                    returning id into batch;
                end if;
                taken := taken || batch;
                room := room - cardinality(ids);
                return next;
            end loop;
            close waiting;
            exit when room <= 0 or room < most or waited;
            raise exception using errcode = 'SRWT1', message = 'nothing was free';
        exception when sqlstate 'SRWT1' then
            waited := true;
        end;
        -- What is due is in the hands of others, who may leave some of it: that is waited for once.
        select b.id into in_hands from sereno.batches b
        where b.purpose = of_purpose and b.channel = by_channel and b.account = of_account and b.job_id is null
          and b.due_at <= sereno.now()
        order by b.due_at, b.id limit 1;
        exit when in_hands is null;
        begin
            perform from sereno.batches b where b.id = in_hands for update;
            raise exception using errcode = 'SRWT1', message = 'it is free, or gone';
        exception when sqlstate 'SRWT1' then
            null;
        end;
    end loop;
    update sereno.batches b
    set job_id = case when again is null then by_job end, taken_at = sereno.now(),
        due_at = case when again is null then b.due_at else sereno.now() + again end
    where b.id = any(taken);
end $$;
