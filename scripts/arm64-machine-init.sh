#!/bin/sh
# The first process of the computer that arm64-machine.sh emulates: tries the recorder, says what it sees, and switches off.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp ROS_DOMAIN_ID=7 ROS_AUTOMATIC_DISCOVERY_RANGE=LOCALHOST
# Of the publisher and the listener.
loopback='<Domain><General><Interfaces><NetworkInterface address="127.0.0.1"/></Interfaces><AllowMulticast>false</AllowMulticast></General><Discovery>
    <ParticipantIndex>auto</ParticipantIndex><MaxAutoParticipantIndex>32</MaxAutoParticipantIndex><Peers><Peer address="127.0.0.1"/></Peers></Discovery></Domain>'
mkdir -p /proc /sys /dev /tmp /var
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
ln -s mawk /usr/bin/awk
mkdir -p /dev/shm /bags /small
mount -t tmpfs shm /dev/shm
mount -t tmpfs tmp /tmp
depmod
modprobe -a virtio_pci virtio_blk ext4
ip link set lo up
mount -t ext4 /dev/vda /bags
mount -t ext4 /dev/vdb /small

off() { sync; echo o > /proc/sysrq-trigger; sleep 60; }
say() { echo "== $(cut -d' ' -f1 /proc/uptime) s: $*"; }
fail() { say "FAILED: $*"; tail -n 30 /tmp/*.log; off; }
now() { cut -d. -f1 /proc/uptime; }
# Waits for a line in a file.
heard() { end=$(($(now) + 180)); until grep -q "$1" "$2" 2>/dev/null; do [ "$(now)" -lt $end ] || fail "no '$1' in $2"; sleep 0.5; done; }
count() { holdall info --json "$1" | jq .message_count; }
# Starts a recorder of /chatter into $1, with what else is named, and a publisher of $2 texts.
begin() {
    bag=$1 texts=$2
    shift 2
    holdall record --disable-keyboard-controls -o "$bag" --topics /chatter "$@" >/tmp/record.log 2>&1 &
    recorder=$!
    heard "Listening" /tmp/record.log
    rm -f /tmp/hold /tmp/talk.log
    mkfifo /tmp/hold
    CYCLONEDDS_URI="$loopback" cyclone_peer talk rt/chatter "$texts" </tmp/hold >/tmp/talk.log 2>&1 &
    talker=$!
    exec 9>/tmp/hold
}
# The publisher leaves.
end() { exec 9>&-; wait $talker; }
# The texts in a bag: how many, and the number of the last one.
texts() { holdall cat "$1" | grep -o 'cyclone [0-9]*' | awk '{ n++; if ($2 != n - 1) bad++; last = $2 } END { print n + 0, last + 0, bad + 0 }'; }

# One artefact, installed in a fresh copy of a system: two topics of two publishers, recorded, read and played by what was installed.
try_artefact() {
    system=$1 kind=$2 root=/bags/merged
    rm -rf /bags/upper /bags/work
    mkdir -p /bags/upper /bags/work $root
    mount -t overlay overlay -o "lowerdir=/artefacts/$system,upperdir=/bags/upper,workdir=/bags/work" $root
    for folder in proc sys dev; do mount --rbind /$folder $root/$folder; done
    mkdir -p $root/dist
    mount --bind /artefacts/dist $root/dist
    outcome=$(work_with_artefact 2>&1 | tail -n 1)
    say "$system $kind of make dist: $outcome"
    umount -l $root
}
work_with_artefact() {
    install="$(cat /artefacts/$kind)"
    chroot $root sh -c "$install" >/tmp/install.log 2>&1 || { echo "FAILED: install: $(tail -n 3 /tmp/install.log | tr '\n' ' ')"; return; }
    # What the installation says of the search path.
    path=$(echo "$install" | sed -n 's/.*export PATH=\([^:]*\):.*/\1/p')
    inside="chroot $root env PATH=${path:+$path:}$PATH"
    $inside holdall record --disable-keyboard-controls -o /tmp/bag --topics /first /second >/tmp/record.log 2>&1 &
    recorder=$!
    heard "Listening" /tmp/record.log
    rm -f /tmp/hold /tmp/*talk.log
    mkfifo /tmp/hold
    for topic in first second; do CYCLONEDDS_URI="$loopback" cyclone_peer talk rt/$topic 300 </tmp/hold >/tmp/$topic.talk.log 2>&1 & done
    exec 9>/tmp/hold
    for topic in first second; do heard '"done"' /tmp/$topic.talk.log; done
    kill -INT $recorder
    wait $recorder || { echo "FAILED: record ended with $?: $(tail -n 1 /tmp/record.log)"; return; }
    exec 9>&-
    $inside holdall audit /tmp/bag >/tmp/audit.log 2>&1 || { echo "FAILED: audit: $(tail -n 1 /tmp/audit.log)"; return; }
    recorded=$($inside holdall info --json /tmp/bag | jq -r '[.topics_with_message_count[].message_count] | map("\(.) of 300") | join(", ")')
    $inside holdall play /tmp/bag --rate 20 --disable-keyboard-controls >/tmp/play.log 2>&1 || { echo "FAILED: play: $(tail -n 1 /tmp/play.log)"; return; }
    if [ "$kind" = wheel ]; then
        read=$($inside python3 -c 'import holdall; print(sum(1 for _ in holdall.open("/tmp/bag").messages()))' 2>&1) || { echo "FAILED: Python: $read"; return; }
        [ "$read" = 600 ] || { echo "FAILED: Python read $read of 600"; return; }
    fi
    [ "$recorded" = "300 of 300, 300 of 300" ] && echo "$recorded" || echo "FAILED: recorded $recorded"
}

say "$(uname -srm), pages of $(getconf PAGESIZE) bytes, $(nproc) processors, $(holdall --version)"

if [ -e /dev/vdc ]; then
    modprobe overlay
    mkdir /artefacts
    mount -t ext4 -o ro /dev/vdc /artefacts
    for system in $(cat /artefacts/systems); do
        for kind in tar deb wheel; do try_artefact $system $kind; done
    done
    echo "all passed"
    off
fi

begin /bags/first 3000 --disk-mode direct
heard '"ready"' /tmp/talk.log
sleep 2
files=$(ls -l /proc/$recorder/fd)
echo "$files" | grep -q 'io_uring' || fail "the recorder has no io_uring: $files"
direct=0
# Of Linux on ARM64: O_DIRECT is 0200000.
for file in $(echo "$files" | grep '/bags/first/.*mcap' | awk '{ print $(NF - 2) }'); do
    flags=$(awk '/^flags/ { print $2 }' /proc/$recorder/fdinfo/$file)
    [ $((flags & 0200000)) -eq 0 ] || direct=1
done
[ $direct = 1 ] || fail "the storage file is not open with O_DIRECT: $files"
say "the recorder has an io_uring, and its storage file is open with O_DIRECT"
heard '"done"' /tmp/talk.log
kill -INT $recorder
wait $recorder || fail "record ended with $?"
end
tail -n 3 /tmp/record.log
holdall audit /bags/first >/tmp/audit.log 2>&1 || fail "audit"
[ "$(count /bags/first)" = 3000 ] || fail "recorded $(count /bags/first) of 3000"
say "recorded 3000 of 3000 of a Cyclone DDS publisher, past the page cache"

CYCLONEDDS_URI="$loopback" cyclone_peer listen rt/chatter 3000 >/tmp/listen.log 2>&1 &
listener=$!
heard '"ready"' /tmp/listen.log
holdall play /bags/first --rate 4 --wait-for-subscribers 1 --disable-keyboard-controls >/tmp/play.log 2>&1 || fail "play ended with $?"
wait $listener || fail "the listener ended with $?"
say "played: the listener heard $(grep -c heard /tmp/listen.log) of 3000"

begin /bags/killed 30000
heard '"ready"' /tmp/talk.log
sleep 4
kill -KILL $recorder
wait $recorder
sleep 1
kill $talker
end
holdall repair /bags/killed >/tmp/repair.log 2>&1
say "repair after kill -9 ended with $?: $(tail -n 1 /tmp/repair.log)"
holdall check /bags/killed >/tmp/check.log 2>&1 || fail "check after repair"
set -- $(texts /bags/killed)
[ "$1" -gt 100 ] && [ "$3" = 0 ] && [ "$1" = $(($2 + 1)) ] || fail "after kill -9 the bag has $1 texts, the last is number $2, $3 not in their place"
say "after kill -9 the bag has texts 0 to $2, none missing"

export PEER_TEXT_BYTES=60000
begin /small/full 3000 --disk-mode direct
wait $recorder
code=$?
kill $talker
end
tail -n 4 /tmp/record.log
[ $code = 1 ] || fail "on a full disk record ended with $code"
holdall check /small/full >/tmp/check.log 2>&1 || fail "check of the bag on the full disk"
set -- $(texts /small/full)
[ "$1" -gt 100 ] && [ "$3" = 0 ] || fail "on the full disk: $1 texts, $3 not in their place"
say "on a full disk of $(df -k --output=size /small | tail -n 1) KiB record ended with 1, the bag is sound and has texts 0 to $2"
say "done"
echo "all passed"
off
