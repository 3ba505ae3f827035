#!/usr/bin/env bash
# Runs the end-to-end tests, three files at a time. What fails beside others runs once more, alone: a test that passes then has a race, in itself or
# in the program, and its first failure is printed above to be mended.
#
#   scripts/e2e.sh PYTHON [PYTEST ARGUMENT...]
set -uo pipefail
python="$1"
shift
"$python" -m pytest -q -n 3 --dist loadfile "$@" tests/e2e
code=$?
# 1: tests have failed. All else cannot become better.
[ "$code" = 1 ] || exit "$code"
echo "what failed runs once more, alone" >&2
exec "$python" -m pytest -q --last-failed "$@" tests/e2e
