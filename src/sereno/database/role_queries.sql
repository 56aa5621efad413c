-- Who this is, and which roles were made for sereno.

-- name: mine
-- Whether this login is a superuser, or owns our tables by itself or by a role that it belongs to.
select current_user::text, rolsuper,
       (select pg_has_role(current_user, relowner, 'member') from pg_class where oid = 'sereno.jobs'::regclass)
from pg_roles where rolname = current_user;

-- name: made
-- The first part of the owner's name, where the schema belongs to an owner that has a worker beside it.
select left(owner.rolname, -length('_owner'))
from pg_namespace
join pg_roles owner on owner.oid = nspowner
join pg_roles worker on worker.rolname = left(owner.rolname, -length('_owner')) || '_worker'
where nspname = %(schema)s and owner.rolname ~ '_owner$' and not owner.rolcanlogin;
