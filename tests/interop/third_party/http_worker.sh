#!/bin/sh
# A worker in shell and curl, written from docs/http.md alone. Each job's payload goes to the standard input of a
# command, and its standard output is the result; if it fails, its standard error is the reason.
#
#     http_worker.sh http://127.0.0.1:7480 SERVICE LEASE COMMAND...
set -u
broker=$1 service=$2 lease=$3
shift 3
dir=$(mktemp -d) && mkdir "$dir/signs"
beat=$(awk "BEGIN { print $lease / 3 }")
job=0
trap 'leave; exit 0' TERM INT
trap 'rm -rf "$dir"' EXIT

# ask METHOD PATH [curl's options]: prints the status, 000 without a connection; the body and the head go to files.
ask() {
    method=$1 path=$2
    shift 2
    curl -s -X "$method" -o "$dir/body" -D "$dir/head" -w '%{http_code}' --max-time 60 \
        -H "Dragoman-Worker-Token: $token" "$@" "$broker$path" || true
}

header() { tr -d '\r' <"$dir/head" | awk -F': ' -v name="$1" 'tolower($1) == name { print $2; exit }'; }
field() { sed -n "s/.*\"$1\":\"\{0,1\}\([^\",}]*\).*/\1/p" "$dir/body"; }

join() {
    token=none
    while status=$(ask POST /v1/workers -H 'Content-Type: application/json' \
        -d "{\"services\": [\"$service\"], \"name\": \"shell $$\", \"lease\": $lease}"); do
        [ "$status" = 201 ] && break
        sleep 0.2
    done
    token=$(field token) me=/v1/workers/$(field id)
    echo "joined as $me"
}

leave() {
    [ "$job" != 0 ] && kill "$job" 2>/dev/null
    ask DELETE "$me" >/dev/null
    echo "left"
}

# Run the job in the background, send heartbeats until it ends, and stop it when it is cancelled.
work() {
    "$@" <"$dir/payload" >"$dir/result" 2>"$dir/reason" &
    job=$!
    (
        dir=$dir/signs
        while sleep "$beat" && kill -0 "$job" 2>/dev/null; do
            [ "$(ask POST "$me/heartbeat" -H "Dragoman-Attempt: $attempt")" = 409 ] && kill "$job"
        done
    ) &
    signs=$!
    wait "$job"
    code=$? job=0
    kill "$signs" 2>/dev/null
    return $code
}

# The broker may be down for a while: the result is sent when it is back.
deliver() {
    while status=$(ask POST "$me/result$1" -H "Dragoman-Attempt: $attempt" --data-binary "@$2"); do
        case $status in 000 | 503) sleep 0.2 ;; *) break ;; esac
    done
    echo "delivered $attempt: $status"
}

join
while status=$(ask POST "$me/next"); do
    case $status in
    200)
        mv "$dir/body" "$dir/payload"
        attempt=$(header dragoman-attempt)
        if work "$@"; then deliver "" "$dir/result"; else deliver "?outcome=failed" "$dir/reason"; fi
        ;;
    204) ;;
    410) join ;;
    *) sleep 0.2 ;;
    esac
done
