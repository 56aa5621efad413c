"""Privileges of the database roles: one line for each table, one for each function that runs as its owner.

s: select, i: insert, u: update, d: delete. `u(used_at)`: that column only. A new table needs a line here, with the
least that its queries need; a test names missing ones. Functions that are not listed run with the privileges of their
caller.
"""

from typing import Literal, TypeAlias, get_args

Reach: TypeAlias = Literal["worker", "server", "reader"]
REACHES: tuple[Reach, ...] = get_args(Reach)

# Roles that log in. The owner role does not.
LOGINS = (*REACHES, "producer", "procedure")

TABLES = """
table                  worker  server  reader
accounts               s       s       -
addresses              siu     siud    s
addresses_v1           s       s       s
alert_rules            siu     siud    s
alerts                 siud    su      s
idempotency_keys       ds(at)  siud    -
archive_batches        su(rows,columns,as_texts,children_moved,children_after,verified_at,drop_eligible_at,error)  s  s
archive_files          siu     s       s
archived_again         si      s       s
attempts               sid     sid     s
attempts_default       sd      s       s
attempts_v1            s       s       s
audit                  i(actor,action,subject,detail)  si(actor,action,subject,detail)  s
batches                siud    si      s
bulk_operations        sud     siu     s
carried_jobs           siud    si      s
carried_queues         siud    siud    s
carrier_states         siud    s       s
channel_codes          siud    s       s
channel_minutes        siud    s       s
channel_pauses         sid     sid     s
clock                  s       s       s
deliveries             siud    su      s
deliveries_v1          s       s       s
deleted_jobs           sid     si      s
dependencies           siud    siud    s
delivery_hours         siud    s       s
delivery_tenant_hours  siud    s       s
duties                 siu     -       s
early_receipts         siud    i       s
ended_attempts         siud    -       s
error_groups           siud    su      s
error_hours            siud    s       s
event_types            siu     siu     s
events                 siud    siu(matched_at,cancelled_at)  s
events_v1              s       s       s
failed_deliveries      siud    siud    s
fires                  siud    siu     s
fires_default          sud     -       s
fires_v1               s       s       s
group_parts            siud    siud    s
groups                 siud    siud    s
limiters                  siud    siu     s
history                siud    siud    s
history_dead           sud     s       s
history_done           si      s       s
history_done_default   sud     s       s
inbox                  siu     su      s
job_chunks             sid     sd      s
job_streams            siud    sd      s
jobs                   siud    siud    s
jobs_v1                s       s       s
key_rules              siud    s       s
lane_queues            si      -       s
lane_wakes             sid     si      s
lanes                  siud    s       s
leases                 siu     s       s
limits                 siud    siud    s
logs                   siud    s       s
message_ids            sid     s       s
migrations             s       s       s
minutes                siud    s       s
pauses                 s       siud    s
preferences            siud    siud    s
procedure_runs         siud    sd      s
procedures             s       siud    s
procedures_v1          s       s       s
progress               siud    sd      s
receipts               sid     si      s
receipts_v1            s       s       s
recipients             siud    siud    s
recipients_v1          s       s       s
refused_declarations   siud    s       s
relay_batches          siud    siud    s
repeated_messages      sid     -       s
restored               siud    s       s
saved_searches         -       siud    s
schedule_ends          siud    siud    s
schedules              siud    siud    s
schedules_v1           s       s       s
sessions               siud    s       s
sessions_v1            s       s       s
shares                 siud    -       s
signal_waits           siud    sd      s
signals                sud     s       s
sign_outs              sd      si      s
steps                  siud    sd      s
subscriptions          siud    siud    s
tasks                  siu     s       s
templates              s       siud    s
ten_minutes            siud    s       s
tenant_hours           siud    s       s
tokens                 -       siu     su(used_at)
tries                  siud    s       s
unique_keys            siud    siud    s
waiters                siud    siud    s
weights                siud    siud    s
"""

# Sequences used by name; those of identity columns need no privilege.
SEQUENCES = {
    "direct_ids": ("worker", "server"),
    "jobs_id_seq": ("worker", "server"),
    "ready_seq": ("worker", "server"),
}

# Functions that run as the owner, and the roles that may call them. Each does one thing that needs the owner or that
# its caller may not do directly, validates its arguments, and calls no code written by users.
AS_OWNER: dict[str, tuple[str, ...]] = {
    "archive_day": ("worker",),
    "drop_attempts_partition": ("worker",),
    "drop_batch": ("worker",),
    "drop_fires_partition": ("worker",),
    "drop_history_partition": ("worker",),
    "forget_batch": ("worker",),
    "make_day_partition": ("worker",),
    "new_batch": ("worker",),
    # Workers in other languages: your own role needs to be granted only these seven.
    "claim_jobs": ("worker",),
    "close_session": ("worker",),
    "emit": ("worker",),
    "heartbeat": ("worker",),
    "open_session": ("worker",),
    "read_results": ("worker",),
    "settle_jobs": ("worker",),
    "enqueue": ("worker", "server", "producer"),
    "notify": ("worker", "server", "producer"),
    "schedule": ("worker", "server", "producer"),
    "signal": ("worker", "server", "producer"),
    "unschedule": ("worker", "server", "producer"),
}

WORDS = {"s": "select", "i": "insert", "u": "update", "d": "delete"}


def tables() -> dict[str, dict[Reach, str]]:
    """Return the privileges of each role on each table, as letters."""
    lines = [line.split() for line in TABLES.strip().splitlines()[1:]]
    return {name: dict(zip(REACHES, rights, strict=True)) for name, *rights in lines}


def privileges(letters: str) -> list[str]:
    """Return letters such as `su(used_at)` as SQL: select, update (used_at)."""
    letters, _, columns = letters.strip("-").partition("(")
    words = [WORDS[letter] for letter in letters]
    if columns:
        words[-1] += f" ({columns}"
    return words
