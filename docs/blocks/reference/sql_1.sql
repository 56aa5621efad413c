create table orders (id bigint generated always as identity primary key, total integer not null);
-- the block of the page
insert into orders (total) values (42);
do $$ begin
    assert (select args from sereno.jobs where task = 'confirm') = '{"order": 1}';
end $$;
