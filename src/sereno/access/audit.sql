-- The audit log.

-- name: audit
-- Written in the transaction that makes the change, or not at all.
insert into sereno.audit (actor, action, subject, detail)
values (%(actor)s, %(action)s, %(subject)s, %(detail)s::text::jsonb);
