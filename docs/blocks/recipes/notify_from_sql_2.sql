-- the block of the page
do $$ begin
    assert (select array_agg(subject) from sereno.events where note like 'payload of the wrong shape%') = array['T-3'];
    assert not exists (select from sereno.deliveries join sereno.events on events.id = event_id where subject = 'T-3');
end $$;
