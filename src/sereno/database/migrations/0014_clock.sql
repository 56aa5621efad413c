-- Whoever waits for a moment hears when a test has moved the clock, instead of waiting for the next look.
create function sereno.tell_of_clock() returns trigger
    language plpgsql as $$
begin
    perform pg_notify('sereno.clock', '');
    return null;
end $$;

create trigger clock_moved after insert or update or delete on sereno.clock
    for each statement execute function sereno.tell_of_clock();
