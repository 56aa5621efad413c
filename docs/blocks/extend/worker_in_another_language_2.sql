-- the block of the page
do $$ begin
    assert (select state from sereno.sessions where id = 1) = 'closed';
    assert (select state from sereno.history where id = 1) = 'succeeded';
end $$;
