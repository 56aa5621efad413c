-- The role of this connection, and the roles of sereno.

-- name: current_role
-- Whether this login is a superuser, or owns the tables directly or through a role.
select current_user::text, rolsuper,
       (select pg_has_role(current_user, relowner, 'member') from pg_class where oid = 'sereno.jobs'::regclass)
from pg_roles where rolname = current_user;

-- name: prefix
-- The prefix of the role names, if the schema belongs to an owner role with a matching worker role.
select left(owner.rolname, -length('_owner'))
from pg_namespace
join pg_roles owner on owner.oid = nspowner
join pg_roles worker on worker.rolname = left(owner.rolname, -length('_owner')) || '_worker'
where nspname = %(schema)s and owner.rolname ~ '_owner$' and not owner.rolcanlogin;
