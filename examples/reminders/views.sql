-- The tables and the words of the original design, as views on sereno's read contract. Safe to run again.

-- A delivery. FAILED: the last attempt failed, and `next_attempt_at` is the next one; without it there is none.
create or replace view reminders.reminder_deliveries as
select id, subject as reminder_id, upper(channel) as channel,
       case when state in ('sent', 'delivered', 'read') then 'SENT'
            when state = 'dead' then 'DEAD_LETTER'
            when state in ('failed', 'invalid', 'bounced') or (state = 'pending' and attempts > 0) then 'FAILED'
            when state in ('pending', 'sending') then 'QUEUED'
            when state = 'unknown' then 'UNKNOWN'
            else 'SKIPPED'
       end as status,
       attempts, nullif(concat_ws(': ', error_code, error_message), '') as last_error,
       case when state = 'pending' then due_at end as next_attempt_at,
       subject || ':' || upper(channel) || ':' || event_key as idempotency_key,
       sent_at, created_at, changed_at as updated_at, state, event_id, recipient
from sereno.deliveries_v1
where event like 'reminders.due.%';

create or replace view reminders.notification_deliveries as select * from reminders.reminder_deliveries;

-- ReminderStatus. SENT: a delivery of the event for the current due date has arrived, by whichever channel.
create or replace view reminders.reminder_status as
select id as reminder_id, person, title, asset, upper(channel) as channel, due_at as scheduled_date,
       case when queued_for = due_at and exists (
                select from sereno.deliveries_v1 d
                where d.event_id = reminders.event_id and d.state in ('sent', 'delivered', 'read')) then 'SENT'
            when due_at <= now() then 'OVERDUE'
            else 'PENDING'
       end as status
from reminders.reminders;
