#!/bin/sh
# The small set of experiments that CI compares with docs/benchmarks/ci, about ten minutes, as root: scripts/bench-ci.sh OUT [HOLDALL]
# On a disk that is held to a rate, what is recorded does not depend on the machine's disk.
set -eu
out=$1 holdall=${2:-holdall}
disk="--disk-limit 510MB/s"
run() { "$holdall" bench run "$@"; }
run A6 $disk --scale 0.1 --repeat 3 --recorder holdall --case '100 × 50 KB' --out "$out"
run C1 $disk --scale 0.15 --repeat 3 --transport iceoryx2 --no-affinity --out "$out"
run storage $disk --sizes 10KiB --total 200MB --repeat 5 --out "$out/B1" \
    --configs mcap_default,mcap_crate,mcap_nocrc,mcap_crate_nocrc,sqlite_default,sqlite_bare_default
run D3 --scale 0.2 --repeat 5 --middleware cyclone,tcp,udp --case ', 0 % loss' --case ', 10 % loss' --out "$out"
