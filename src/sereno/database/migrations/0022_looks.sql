-- For looks that were slow.

-- What was archived is found again without a look at everybody's.
create index inbox_archived on sereno.inbox (recipient_id, id desc) where archived_at is not null;

-- What is in minutes, by ten of them: a week of those is read in a tenth of the time.
create table sereno.ten_minutes (like sereno.minutes including all) with (fillfactor = 70);
insert into sereno.ten_minutes
select date_bin('10 minutes', minute, 'epoch'), queue, task, sum(succeeded), sum(retried), sum(dead), sum(cancelled), sum(other),
       sereno.sum_of(waits), sereno.sum_of(runs), sum(run_seconds)
from sereno.minutes group by 1, 2, 3;

-- A JSON value as lists and pages show it. What is nested so deep that no reader of JSON can be relied on, or larger than
-- `most` bytes, is named instead, so that one such row does not hide the others.
create function sereno.shown(value jsonb, most integer default null) returns jsonb
    language sql immutable as $$
    select case
        when octet_length(value::text) > most
        then jsonb_build_object('not shown', format('%s bytes: look at it alone', octet_length(value::text)))
        when value @? '$.**{200 to last}'
        then jsonb_build_object('not shown', 'nested more than 200 levels deep')
        else value
    end
$$;

-- What an error said, as those may search it who see it masked: without all that the server hides from them, and rather
-- more. Here only so much is left as can be found; the server itself writes what is seen.
create function sereno.masked(said text) returns text
    language sql immutable as $$
    select regexp_replace(regexp_replace(regexp_replace(regexp_replace(regexp_replace(regexp_replace(regexp_replace(said,
        '://[^\s/:@]*:\S+@', '://********@', 'g'),
        '(bearer|basic)\s+\S+', '\1 ********', 'gi'),
        '(srn_|[srp]k_(live|test)_|eyJ)[^\s"'',;]+', '********', 'gi'),
        '(passw(or)?d|passphrase|contrase.a|senha|secret|token|api[_-]?key)["'']?\s*[=:]\s*'
            '(''[^''\n]+''|"[^"\n]+"|["'']?[^\s&"'',;]+)', '\1=********', 'gi'),
        '([0-9]{4}[ -]){3}[0-9]{1,7}', '********', 'g'),
        '[^\s@<>"''(),;:=]+@[^\s@<>"''(),;:]+', '********', 'g'),
        '\+[1-9]([ ().-]{0,2}[0-9]){6,14}', '********', 'g')
$$;

-- Whether what an error said is like one of the patterns; with `hides`, what is seen of it must be like the same one. Two
-- that are like one each would tell what is hidden: "*guess*" of what was said, "********" of what is seen.
create function sereno.said_like(said text, patterns text[], hides boolean) returns boolean
    language sql immutable as $$
    select exists (select from unnest(patterns) as pattern
                   where said ilike pattern and (hides is not true or sereno.masked(said) ilike pattern))
$$;
