#!/usr/bin/env bash
# What action.yml runs: checks each bag of $BAGS, one on a line, with $HOLDALL; $LOSSES is fail, warn or ignore. Commands for GitHub's log are lines of
# standard output that begin with `::`.
set -uo pipefail

# Text as GitHub's commands have it: all in one line. A property ends at a colon or comma.
escaped() {
    local text="${1//'%'/%25}"
    text="${text//$'\r'/%0D}"
    printf '%s' "${text//$'\n'/%0A}"
}
property() {
    local text
    text="$(escaped "$1")"
    text="${text//:/%3A}"
    printf '%s' "${text//,/%2C}"
}
# say error|warning|notice TITLE TEXT
say() { printf '::%s title=%s::%s\n' "$1" "$(property "$2")" "$(escaped "$3")"; }
# What a program wrote, which may look like a command: GitHub runs none until it reads the same word again.
show() {
    local word="stop-$RANDOM$RANDOM$RANDOM"
    printf '::stop-commands::%s\n%s\n::%s::\n' "$word" "$1" "$word"
}
refuse() {
    say error "$1" "$2"
    exit 2
}

case "$LOSSES" in fail | warn | ignore) ;; *) refuse "wrong input" "losses must be fail, warn or ignore, not $LOSSES" ;; esac
command -v -- "$HOLDALL" >/dev/null || refuse "wrong input" "holdall must be a program, not $HOLDALL"
bags=()
while IFS=$' \t\r' read -r bag || [ -n "$bag" ]; do
    [ -z "$bag" ] || bags+=("$bag")
done <<<"$BAGS"
[ ${#bags[@]} -gt 0 ] || refuse "wrong input" "no bag was named"

failed=0
for bag in "${bags[@]}"; do
    printf '::group::%s\n' "$(escaped "$bag")"
    if ! text=$("$HOLDALL" check -- "$bag" 2>&1); then
        say error "not sound: $bag" "$text"
        failed=1
    fi
    show "$text"
    text=$("$HOLDALL" audit -- "$bag" 2>&1)
    code=$?
    show "$text"
    printf '::endgroup::\n'
    case "$code:$LOSSES" in
        0:* | 3:ignore) ;;
        2:*) say notice "no account: $bag" "$text" ;;
        3:warn) say warning "messages are lost: $bag" "$text" ;;
        3:*) say error "messages are lost: $bag" "$text"; failed=1 ;;
        *) say error "the account does not add up: $bag" "$text"; failed=1 ;;
    esac
done
exit $failed
