begin;
create role sereno_producer;
create role shop;
-- the block of the page
do $$ begin
    assert (select args->>'order' from sereno.jobs where task = 'confirm') = '7';
end $$;
rollback;
