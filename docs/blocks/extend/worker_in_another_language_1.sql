begin;
-- the block of the page
set session authorization images_worker;
do $$
declare session bigint := sereno.open_session(array['images'], array['resize']);
begin
    assert (select task from sereno.claim_jobs(session)) = 'resize';
    assert (select alive from sereno.heartbeat(session, array[1]));
    assert (select settled from sereno.settle_jobs(session, '[{"id": 1, "attempt": 1, "outcome": "succeeded"}]'));
    assert sereno.close_session(session) = 0;
    begin
        perform from sereno.jobs;
        raise 'images_worker reads a table';
    exception when insufficient_privilege then
    end;
end $$;
rollback;
alter table sereno.sessions alter id restart;
