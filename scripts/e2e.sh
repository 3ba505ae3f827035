#!/usr/bin/env bash
# Runs the end-to-end tests, three files at a time. What fails beside others runs once more, alone: a test that passes then has a race, in itself or
# in the program, and its first failure is printed above to be mended. The last line names each of them.
#
#   scripts/e2e.sh PYTHON [PYTEST ARGUMENT...]
set -uo pipefail
python="$1"
shift
failed="$(mktemp)"
trap 'rm -f "$failed"' EXIT
"$python" -m pytest -q --cache-clear -n 3 --dist loadfile "$@" tests/e2e
code=$?
# 1: tests have failed. All else cannot become better.
[ "$code" = 1 ] || exit "$code"
"$python" -c 'import json; print("\n".join(sorted(json.load(open(".pytest_cache/v/cache/lastfailed")))))' >"$failed"
echo "what failed runs once more, alone" >&2
"$python" -m pytest -q --last-failed "$@" tests/e2e
code=$?
[ "$code" = 0 ] && echo "passed only the second time: $(wc -l <"$failed") ($(paste -sd ' ' "$failed"))"
exit "$code"
