create table pgqueuer (id bigint generated always as identity, status text, entrypoint text, payload bytea,
    execute_after timestamptz, dedupe_key text);
insert into pgqueuer (status, entrypoint, payload, execute_after)
    values ('queued', 'resize', '{"path": "c.png"}', now()), ('picked', 'resize', '{"path": "d.png"}', now());
-- the block of the page
do $$
begin
    assert (select count(*) from pgqueuer) = 1;
    assert (select count(*) from sereno.jobs where task = 'resize' and args = '{"path": "c.png"}') = 1;
end $$;
