create table procrastinate_jobs (id bigint generated always as identity, status text, task_name text, args jsonb,
    queue_name text, scheduled_at timestamptz, queueing_lock text);
insert into procrastinate_jobs (status, task_name, args, queue_name, queueing_lock)
    values ('todo', 'pictures.resize', '{"path": "a.png"}', 'pictures', 'resize'),
           ('doing', 'pictures.resize', '{"path": "b.png"}', 'pictures', null);
-- the block of the page
do $$
begin
    assert (select count(*) from procrastinate_jobs) = 1;
    assert (select count(*) from sereno.jobs where task = 'resize' and args = '{"path": "a.png"}') = 1;
end $$;
