-- For looks that were slow.

-- What was archived is found again without a look at everybody's.
create index inbox_archived on sereno.inbox (recipient_id, id desc) where archived_at is not null;

-- What is in minutes, by ten of them: a week of those is read in a tenth of the time.
create table sereno.ten_minutes (like sereno.minutes including all) with (fillfactor = 70);
insert into sereno.ten_minutes
select date_bin('10 minutes', minute, 'epoch'), queue, task, sum(succeeded), sum(retried), sum(dead), sum(cancelled), sum(other),
       sereno.sum_of(waits), sereno.sum_of(runs), sum(run_seconds)
from sereno.minutes group by 1, 2, 3;
