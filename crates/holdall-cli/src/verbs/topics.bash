_holdall_topics() {
    local flag="" at
    for ((at = COMP_CWORD - 1; at > 1; at--)); do
        if [[ "${COMP_WORDS[at]}" == -* ]]; then flag="${COMP_WORDS[at]}"; break; fi
    done
    local wants=""
    case "$flag" in
        --topics|--exclude-topics|--clock-topics) wants=1 ;;
        -t) [[ "${COMP_WORDS[1]}" != info ]] && wants=1 ;;
        "") case "${COMP_WORDS[1]}" in VERBS) wants=1 ;; esac ;;
    esac
    if [[ -n "$wants" && "$2" != -* && $COMP_CWORD -gt 1 ]]; then
        COMPREPLY=( $(compgen -W "$("$1" completion --words "${COMP_WORDS[@]:1:COMP_CWORD-1}" 2>/dev/null)" -- "$2") )
        [[ ${#COMPREPLY[@]} -gt 0 ]] && return
    fi
    _holdall "$@"
}
complete -F _holdall_topics -o bashdefault -o default holdall
