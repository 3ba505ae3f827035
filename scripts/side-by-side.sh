#!/usr/bin/env bash
# Runs two commands at the same time: the first one prints as it runs, the output of the second one follows in one piece.
#
#   scripts/side-by-side.sh "make lint unit" "make e2e"
#
# Fails when one of them fails, and then interrupts the other one.
set -uo pipefail
output="$(mktemp)"
trap 'rm -f "$output"' EXIT

# With job control each is a process group of its own, and is started without SIGINT ignored.
set -m
bash -c "$1" &
first=$!
bash -c "$2" >"$output" 2>&1 &
second=$!
trap 'kill -INT -- "-$first" "-$second" 2>/dev/null; wait; exit 130' INT TERM

failed=0
wait -n "$first" "$second" || failed=$?
if [ "$failed" != 0 ]; then
    kill -INT -- "-$first" "-$second" 2>/dev/null
fi
for process in "$first" "$second"; do
    wait "$process" || { ended=$?; [ "$failed" != 0 ] || failed=$ended; }
done
cat "$output"
exit "$failed"
