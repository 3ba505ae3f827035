#!/usr/bin/env bash
# Boots a whole ARM64 computer in emulation and records, plays, kills and fills a disk in it: at most 20 minutes. Needs `scripts/setup.sh arm64`.
#
#   scripts/arm64-machine.sh [PROGRAM]     a holdall for ARM64; as a rule that of `make dist`
#   PAGES=16k scripts/arm64-machine.sh     with a kernel whose pages have 16 KiB, as on a Raspberry Pi 5
#   scripts/arm64-machine.sh --artefacts DISK    installs those of `make dist` in the systems on a disk of dist-roots.py, and records two topics with each
#
# Kernel and system are packages of Debian 13, which apt has checked. The publisher is a program of this folder's tests on Debian's Cyclone DDS. The
# computer has no network but its loopback. What it does is in arm64-machine-init.sh; its console is printed.
set -euo pipefail
cd "$(dirname "$0")/.."
target="${CARGO_TARGET_DIR:-target}"
artefacts=
if [ "${1:-}" = --artefacts ]; then artefacts="$2"; shift 2; fi
program="${1:-$target/aarch64-unknown-linux-gnu/release/holdall}"
pages="${PAGES:+-$PAGES}"
work="$target/arm64-machine$pages"
[ -e "$program" ] || { echo "$program does not exist: name a holdall for ARM64" >&2; exit 2; }
mkdir -p "$work"

# Nothing is configured, so nothing of ARM64 runs here.
if [ ! -e "$work/kernel" ]; then
    rm -rf "$work/system"
    mkdir "$work/system"
    packed="$work/system.tar"
    packages="base-files,dash,coreutils,mawk,grep,sed,mount,libc-bin,kmod,iproute2,jq,cyclonedds-dev,linux-image-arm64$pages"
    mmdebstrap --quiet --format=tar --variant=extract --arch=arm64 --include="$packages" trixie "$packed" http://deb.debian.org/debian
    # Of the modules, those for disks, unpacked.
    tar -xf "$packed" -C "$work/system" --exclude='./dev/*' --exclude='./usr/share' --exclude='./usr/lib/linux-image-*' --exclude='*/kernel/*'
    tar -xf "$packed" -C "$work/system" --wildcards '*/kernel/fs/ext4/*' '*/kernel/fs/overlayfs/*' '*/kernel/fs/jbd2/*' '*/kernel/fs/mbcache*' '*/kernel/lib/*crc*' '*/kernel/crypto/crc32c*' \
        '*/kernel/drivers/block/virtio_blk*' '*/kernel/drivers/virtio/*'
    find "$work/system" -name '*.ko.xz' -exec unxz {} +
    rm "$packed"
    mv "$work"/system/boot/vmlinuz-* "$work/kernel"
fi

idlc -x final -l c -o "$work" tests/nodes/secured/text.idl
aarch64-linux-gnu-gcc -O2 -I"$work" -idirafter "$work/system/usr/include" -idirafter "$work/system/usr/include/aarch64-linux-gnu" -o "$work/system/usr/bin/cyclone_peer" \
    tests/nodes/secured/cyclone_peer.c "$work/text.c" "$work/system/usr/lib/aarch64-linux-gnu/libddsc.so.0debian" -Wl,--allow-shlib-undefined
aarch64-linux-gnu-strip -o "$work/system/usr/bin/holdall" "$program"
install -m 755 scripts/arm64-machine-init.sh "$work/system/init"
(cd "$work/system" && find . -print0 | cpio --null --create --format=newc --quiet) > "$work/initrd"

# One disk for bags, and a small one that is filled.
rm -f "$work"/*.disk
truncate -s 2G "$work/bags.disk"
truncate -s 64M "$work/small.disk"
for disk in bags small; do mkfs.ext4 -q -F "$work/$disk.disk"; done
timeout "$([ "$artefacts" ] && echo 2400 || echo 1200)" qemu-system-aarch64 -M virt -cpu cortex-a76 -smp 2 -m 3G -nographic -no-reboot -nic none -kernel "$work/kernel" -initrd "$work/initrd" \
    -append "console=ttyAMA0 quiet panic=-1" \
    -drive "file=$work/bags.disk,format=raw,if=virtio,cache=none" -drive "file=$work/small.disk,format=raw,if=virtio,cache=none" \
    ${artefacts:+-drive "file=$artefacts,format=raw,if=virtio,readonly=on"} </dev/null | tee "$work/log"
grep -q "^all passed" "$work/log"
