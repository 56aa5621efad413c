-- Procedures: stored procedures that jobs may call, and the results of the calls.

-- Allowed procedures. The name is resolved to one exact signature when the procedure is allowed; a call that finds
-- another signature is refused. `given`: parameters that are filled from the job, such as {"run": "job"}, and that
-- callers cannot set. The timeouts are seconds: of the statement, and of each wait for a lock.
create table sereno.procedures (
    target        text not null,
    name          text not null,
    signature     jsonb not null,
    given         jsonb not null default '{}',
    timeout       double precision not null check (timeout > 0),
    lock_timeout  double precision not null check (lock_timeout > 0),
    note          text,
    allowed_by    text not null,
    allowed_at    timestamptz not null default sereno.now(),
    primary key (target, name)
);

-- Results of successful calls: the first rows, their number, and the notices of the procedure.
create table sereno.procedure_runs (
    job_id       bigint not null,
    attempt      integer not null,
    target       text not null,
    name         text not null,
    seconds      double precision not null,
    result       jsonb not null,
    finished_at  timestamptz not null default sereno.now(),
    primary key (job_id, attempt)
);

create index procedure_runs_finished on sereno.procedure_runs (finished_at);
create index procedure_runs_newest on sereno.procedure_runs (target, name, finished_at);
