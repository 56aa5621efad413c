#!/bin/sh
# A worker in POSIX shell, on psql and nothing else:
#   DATABASE_URL=postgresql://... ./worker.sh tasks default
# Each task is a program of that name in a directory. It reads its arguments, a JSON object, from standard input, and ends with
#   0: succeeded   65: dead, never again   75: not now, in a minute   by a signal: crashed   anything else: tried again
set -u
tasks=${1:?a directory of programs} queue=${2:-default} lease=${LEASE:-30} poll=${POLL:-1}
tab=$(printf '\t') stop='' here=$(mktemp -d)
sql() { # variables as arguments (name=value), SQL on standard input: psql quotes what :'name' stands for
    for variable; do set -- "$@" -v "$variable"; shift; done
    "${PSQL:-psql}" "$DATABASE_URL" -XqAt -F "$tab" -v ON_ERROR_STOP=1 "$@"
}
open_session() {
    echo "select sereno.open_session(array[:'queue'], string_to_array(:'tasks', chr(10)), :'host', :pid, version => 'shell',
          lease => make_interval(secs => :lease))" |
        sql queue="$queue" tasks="$(ls "$tasks")" host="$(uname -n)" pid=$$ lease="$lease"
}
claim() { echo 'select id, attempt, task, args from sereno.claim_jobs(:session)' | sql session="$session"; }
hold() { echo "$*" >"$here/new" && mv "$here/new" "$here/held"; } # the claimed job, and its process while it runs
heartbeats() { # as long as the worker lives: jobs that are cancelled or lost are stopped
    while sleep $((lease / 3)) && kill -0 $$; do
        read -r job process <"$here/held"
        answer=$(echo "select alive and cancel || lost = '{}' from sereno.heartbeat(:session, string_to_array(:'held', ' ')::bigint[])" |
            sql session="$session" held="$job") && [ "$answer" != t ] && [ -n "$process" ] && kill "$process"
    done
}
settle() { # id, attempt, outcome: repeated until it succeeds, for a reply may be lost
    until sql session="$session" id="$1" attempt="$2" outcome="$3" \
        error="$(tail -c 2000 "$here/errors" | iconv -c -f utf-8 -t utf-8)" <<'SQL'
select case when settled then state else why end from sereno.settle_jobs(:session, jsonb_build_array(jsonb_build_object(
    'id', :id, 'attempt', :attempt, 'outcome', :'outcome', 'error_message', nullif(:'error', ''),
    'delay', case :'outcome' when 'snooze' then 60 end)))
SQL
    do sleep 1; done
}
run() { # id, attempt, task, arguments
    printf '%s' "$4" | SERENO_JOB=$1 SERENO_ATTEMPT=$2 "$tasks/$3" >&2 2>"$here/errors" &
    hold "$1" $!
    while wait $!; code=$?; kill -0 $! 2>/dev/null; do :; done # a signal to us ends the wait, not the job
    hold "$1"
    case $code in 0) end=succeeded ;; 65) end=dead ;; 75) end=snooze ;; *) end=retry ;; esac
    [ "$code" -gt 128 ] && end=crash
    echo "job $1 $3: $end, $(settle "$1" "$2" "$end")"
    hold
}
trap 'stop=yes' TERM INT; trap 'rm -rf "$here"' EXIT
while [ -z "$stop" ]; do
    hold
    session=$(open_session) || { sleep "$poll"; continue; }
    echo "session $session"
    heartbeats 2>/dev/null & beat=$!
    while [ -z "$stop" ] && job=$(claim); do
        IFS=$tab read -r id attempt task args <<JOB
$job
JOB
        if [ -n "$id" ]; then run "$id" "$attempt" "$task" "$args"; else sleep "$poll"; fi
    done
    kill $beat
    echo "select 'closed, given back: ' || sereno.close_session(:session)" | sql session="$session"
done
