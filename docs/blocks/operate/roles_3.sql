begin;
select sereno.enqueue('confirm', '{"order": 7}');
-- the block of the page
set local role grafana;
do $$ begin
    assert (select count(*) from sereno.jobs_v1) = 1;
    assert (select count(*) from sereno.deliveries_v1 where state = 'dead') = 0;
    perform from sereno.jobs;
    assert false, 'the tables are private';
exception when insufficient_privilege then
    null;
end $$;
-- Roles belong to the whole server: none is left behind.
rollback;
