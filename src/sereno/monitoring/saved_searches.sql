-- Searches that users have saved under a name. A tenant's users share theirs; those of all tenants share the others.

-- name: list
-- The saved searches of a list, or of all lists, by name.
select list, name, text, saved_by, saved_at from sereno.saved_searches
where tenant is not distinct from %(tenant)s and (list = %(list)s or %(list)s::text is null)
order by list, name limit %(most)s;

-- name: save
-- Save or replace one, unless the list has its most already.
insert into sereno.saved_searches (list, tenant, name, text, saved_by)
select %(list)s, %(tenant)s, %(name)s, %(text)s, %(actor)s
where (select count(*) from sereno.saved_searches
       where list = %(list)s and tenant is not distinct from %(tenant)s and name <> %(name)s) < %(most)s
on conflict (list, tenant, name) do update set text = excluded.text, saved_by = excluded.saved_by, saved_at = sereno.now()
returning list, name, text, saved_by, saved_at;

-- name: delete
-- Delete one; no row if there is none of this name.
delete from sereno.saved_searches
where list = %(list)s and tenant is not distinct from %(tenant)s and name = %(name)s
returning text;
