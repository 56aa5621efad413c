-- Reads of the audit log.

-- name: page
-- The audit, newest first. Actor, action and search terms are checked within a window of the newest lines. With `bytes`, a page
-- ends with the line that passes them. Of a line that does not fit, only its existence is returned.
select case when fits then row_to_json(line)::text end
from (select page.*, row_number() over (order by id desc) <= %(most)s
             and (%(bytes)s::bigint is null
                  or coalesce(sum(octet_length(detail::text))
                              over (order by id desc rows between unbounded preceding and 1 preceding), 0) < %(bytes)s) as fits
      from (
      select * from (select id, at, actor, action, subject, detail, login from sereno.audit
                     where (%(before)s::bigint is null or id < %(before)s)
                       and (%(subject)s::text is null or subject = %(subject)s)
                     order by id desc limit %(window)s) as newest
      where (%(actor)s::text is null or actor = %(actor)s)
        and (%(action)s::text is null or action = %(action)s or starts_with(action, %(action)s || '.'))
-- use: search.terms_begin
               when 'actor' then actor like any(patterns)
               when 'action' then action like any(patterns)
               when 'subject' then subject like any(patterns)
               when 'at' then date_part('epoch', at) >= low and date_part('epoch', at) < high
               else actor ilike any(patterns) or action ilike any(patterns) or subject ilike any(patterns)
-- use: search.terms_end
      order by id desc offset %(skip)s limit %(most)s + 1) as page) as line
order by id desc;
