#!/usr/bin/env bash
# What action.yml runs: checks each bag of $BAGS with $HOLDALL; $LOSSES is fail, warn or ignore. Commands for GitHub's log go to standard output.
set -uo pipefail
case "$LOSSES" in fail | warn | ignore) ;; *) echo "::error::losses must be fail, warn or ignore, not $LOSSES"; exit 2 ;; esac
read -ra bags <<<"$BAGS"
[ ${#bags[@]} -gt 0 ] || { echo "::error::no bag was named"; exit 2; }

# Line breaks and percent signs as GitHub's commands have them.
say() {
    local text="${3//'%'/%25}"
    text="${text//$'\r'/%0D}"
    echo "::$1 title=$2::${text//$'\n'/%0A}"
}

failed=0
for bag in "${bags[@]}"; do
    echo "::group::$bag"
    if ! text=$("$HOLDALL" check "$bag" 2>&1); then
        say error "not sound: $bag" "$text"
        failed=1
    fi
    echo "$text"
    text=$("$HOLDALL" audit "$bag" 2>&1)
    code=$?
    echo "$text"
    echo "::endgroup::"
    case "$code:$LOSSES" in
        0:* | 3:ignore) ;;
        2:*) say notice "no account: $bag" "$text" ;;
        3:warn) say warning "messages are lost: $bag" "$text" ;;
        3:*) say error "messages are lost: $bag" "$text"; failed=1 ;;
        *) say error "the account does not add up: $bag" "$text"; failed=1 ;;
    esac
done
exit $failed
