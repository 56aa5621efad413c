-- Read queries for topics. Each reads a bounded number of rows.

-- name: topics
-- Topics of a tenant by name, by an index skip scan from the prefix of the pattern on, with their number of subscribers.
with recursive found(topic) as (
    (select topic from sereno.subscriptions
     where tenant = %(tenant)s and topic > %(after)s::text collate "C" and topic >= %(prefix)s::text collate "C"
     order by topic limit 1)
    union all
    select (select s.topic from sereno.subscriptions s
            where s.tenant = %(tenant)s and s.topic > found.topic order by s.topic limit 1)
    from found where found.topic is not null and starts_with(found.topic, %(prefix)s)
),
page as (
    select topic
    from (select topic from found where topic is not null and starts_with(topic, %(prefix)s) limit %(window)s) as known
    where %(pattern)s::text is null or topic like %(pattern)s
    limit %(limit)s
)
select row_to_json(line)::text
from (select page.topic, nullif(%(tenant)s::text, '') as tenant,
             (select count(*) from (select from sereno.subscriptions s
                                    where s.tenant = %(tenant)s and s.topic = page.topic limit %(bound)s + 1) as counted) as subscribers
      from page order by page.topic) as line;

-- name: subscribers
-- Subscribers of a topic, the newest recipient first.
select row_to_json(line)::text
from (select r.id, r.key as recipient, s.created_at as subscribed_at
      from sereno.subscriptions s join sereno.recipients r on r.id = s.recipient_id
      where s.tenant = %(tenant)s and s.topic = %(topic)s and (%(before)s::bigint is null or s.recipient_id < %(before)s)
      order by s.recipient_id desc limit %(limit)s) as line
order by id desc;

-- name: topics_of
-- Topics of a recipient by name.
select s.topic from sereno.subscriptions s
where s.recipient_id = (select id from sereno.recipients where tenant = %(tenant)s and key = %(recipient)s)
  and s.topic > %(after)s::text collate "C"
order by s.topic limit %(limit)s;

-- name: is_subscribed
-- Whether a recipient is subscribed to a topic.
select exists (select from sereno.subscriptions
               where tenant = %(tenant)s and topic = %(topic)s and recipient_id = %(recipient)s);
