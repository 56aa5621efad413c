-- Shared fragments: a line "-- use: notifications.NAME" in a query is replaced by the lines of the fragment.

-- fragment: delivery_terms
-- Search terms of deliveries. A term without a field matches part of the channel, tenant, provider id, event or
-- recipient key.
-- use: search.terms_begin
               when 'state' then state like any(patterns)
               when 'channel' then channel like any(patterns)
               when 'account' then nullif(account, '') like any(patterns)
               when 'tenant' then nullif(tenant, '') like any(patterns)
               when 'reason' then sereno.message_matches(reason, patterns, hides)
               when 'error' then sereno.message_matches(nullif(concat_ws(': ', error_code, error_message), ''), patterns, hides)
               when 'provider' then provider_id like any(patterns)
               when 'id' then id::text like any(patterns)
               when 'event_id' then event_id::text like any(patterns)
               when 'job' then job_id::text like any(patterns)
               when 'attempts' then attempts >= low and attempts < high
               when 'created' then date_part('epoch', created_at) >= low and date_part('epoch', created_at) < high
               when 'age' then date_part('epoch', created_at) >= low and date_part('epoch', created_at) < high
               when 'due' then date_part('epoch', due_at) >= low and date_part('epoch', due_at) < high
               when 'sent' then date_part('epoch', sent_at) >= low and date_part('epoch', sent_at) < high
               when 'changed' then date_part('epoch', changed_at) >= low and date_part('epoch', changed_at) < high
               when 'event' then (select of_it.type from sereno.events of_it where of_it.id = event_id) like any(patterns)
               when 'subject' then (select of_it.subject from sereno.events of_it where of_it.id = event_id) like any(patterns)
               when 'recipient' then (select r.key from sereno.recipients r where r.id = recipient_id) like any(patterns)
               else channel ilike any(patterns) or tenant ilike any(patterns) or provider_id ilike any(patterns)
                    or exists (select from sereno.events of_it where of_it.id = event_id
                               and (of_it.type ilike any(patterns) or of_it.subject ilike any(patterns)))
                    or exists (select from sereno.recipients r where r.id = recipient_id and r.key ilike any(patterns))
-- use: search.terms_end

-- fragment: locked_deliveries
-- Locks the deliveries of `wanted` and the deliveries that were collected into them (digests), ordered by id. Returns
-- them as they are under the lock; the statement's snapshot may be older.
locked as materialized (
    select d.id, d.event_id, d.recipient_id, d.address_id, d.channel, d.account, d.state, d.due_at, d.expires_at, d.digest, d.provider_id
    from sereno.deliveries d
    where d.id = any(array(
        select wanted.id from wanted
        union all
        select gathered.id
        from wanted join sereno.deliveries carrier on carrier.id = wanted.id and carrier.digest is not null
        join sereno.deliveries gathered
          on gathered.recipient_id = carrier.recipient_id and gathered.digest = carrier.digest
         and gathered.digest_of = carrier.id and gathered.state = 'skipped'))
    order by d.id for update
),
