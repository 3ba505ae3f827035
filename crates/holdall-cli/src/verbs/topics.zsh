_holdall_topics() {
    local -a topics
    topics=(${(f)"$(holdall completion --words ${words[1,CURRENT-1]} 2>/dev/null)"})
    compadd -a topics
}
