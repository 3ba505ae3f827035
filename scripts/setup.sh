#!/usr/bin/env bash
# Installs what building and testing holdall needs, and nothing else. Safe to run again: what is there is left alone.
#
#   scripts/setup.sh build   system packages and the pinned Rust toolchain
#   scripts/setup.sh demo    real ROS 2 nodes, in a Python venv of the project's own
#   scripts/setup.sh dist    zig, which compiles for other computers, and what describes the programs
#   scripts/setup.sh arm64   a compiler, a C library and emulators of ARM64
#   scripts/setup.sh nodes   the same with foreign bag readers; ROS 1, LevelDB, a browser and btrfs tools where Debian has them
#
# Touches only the project's folder (.venv), the packages named here, and rustup's own folder.
set -euo pipefail
cd "$(dirname "$0")/.."

# cmake and the C compiler build Cyclone DDS; libclang lets bindgen read its headers; libssl-dev has those that its security needs; git is
# cargo's; `make gate` counts with valgrind; tests ask the real sqlite3 about databases.
build_packages=(build-essential cmake pkg-config libclang-dev libssl-dev git ca-certificates valgrind sqlite3)

demo_packages=(python3 python3-venv)
# Headers of Python: pyzeros compiles the serializers that it needs.
# btrfs has quotas that bind root as well.
node_packages=("${demo_packages[@]}" python3-dev btrfs-progs)
# ROS 1 as Debian 12 has it: its recorder, its master, and messages for real publishers. Elsewhere the tests with them are skipped.
ros1_packages=(python3-rosbag python3-rosmaster python3-sensor-msgs python3-tf2-msgs python3-visualization-msgs python3-nav-msgs)
# A browser for the page of `holdall bench report`.
browser_packages=(chromium)
# Cyclone DDS and Fast DDS with security: nodes of secured domains are compiled against them.
secured_packages=(cyclonedds-dev cyclonedds-tools libfastrtps-dev openssl)
# The real LevelDB, a rival in benchmarks.
leveldb_packages=(libleveldb1d)
# What Spark runs on.
java_packages=(default-jre-headless)

say() { printf '\033[1m==>\033[0m %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

install_packages() {
    local missing=()
    for package in "$@"; do
        dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
    done
    [ ${#missing[@]} -eq 0 ] && return
    local sudo=()
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || fail "these Debian packages are missing, and there is no sudo to install them: ${missing[*]}"
        sudo=(sudo)
    fi
    say "installing Debian packages: ${missing[*]}"
    "${sudo[@]}" apt-get update -qq
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# What tests can be without: first word what it is called, then the packages.
install_if_there() {
    local what="$1"
    shift
    command -v apt-cache >/dev/null || return 0
    [ -n "$(ls -A /var/lib/apt/lists 2>/dev/null)" ] || [ "$(id -u)" -ne 0 ] || apt-get update -qq
    local package
    for package in "$@"; do
        # Not through a pipe: a grep that has seen enough ends it, and that counts as a failure here.
        if [[ "$(apt-cache policy "$package")" != *"Candidate: "[0-9]* ]]; then
            say "this distribution has no $package: tests with a real $what are skipped"
            return 0
        fi
    done
    # In a shell of its own: what cannot be installed is no reason to stop.
    (install_packages "$@") || say "tests with a real $what are skipped"
}

find_rust() {
    command -v rustup >/dev/null || PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"
    command -v rustup >/dev/null || fail "rustup, the Rust toolchain manager, was not found: install it from https://rustup.rs and run this again"
    local channel
    channel=$(sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml)
    if ! rustup run "$channel" cargo --version >/dev/null 2>&1; then
        say "installing Rust $channel"
        rustup toolchain install "$channel" --profile minimal --component clippy --component rustfmt
    fi
}

# Installs the packages of LIST into the venv, or into one in a folder of it. The list is copied into the venv as a stamp: an unchanged list is installed once, one that
# lost lines begins with a new venv.
make_venv() {
    local list="$1" what="$2" venv="${HOLDALL_VENV:-.venv}${3:-}"
    local wanted="scripts/$list" stamp
    stamp="$venv/installed-$list"
    cmp -s "$wanted" "$stamp" && return
    # Debian's own interpreter first: the ROS 2 wheels are built for Python 3.11 and 3.12.
    local python=/usr/bin/python3
    [ -x "$python" ] || python=python3
    # Lines that were only added need no new one.
    if { [ -e "$stamp" ] && grep -qvxFf "$wanted" "$stamp"; } || ! [ -x "$venv/bin/python" ]; then
        rm -rf "$venv"
        "$python" -m venv "$venv"
    fi
    say "installing $what into $venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$wanted"
    cp "$wanted" "$stamp"
}

case "${1:-}" in
    build) install_packages "${build_packages[@]}"; find_rust ;;
    demo)
        install_packages "${demo_packages[@]}"
        make_venv python-packages-demo.txt "real ROS 2 nodes"
        ;;
    nodes)
        install_packages "${node_packages[@]}"
        install_if_there "ROS 1" "${ros1_packages[@]}"
        install_if_there LevelDB "${leveldb_packages[@]}"
        install_if_there "secured DDS" "${secured_packages[@]}"
        install_if_there browser "${browser_packages[@]}"
        command -v java >/dev/null || install_if_there Spark "${java_packages[@]}"
        make_venv python-packages-demo.txt "real ROS 2 nodes"
        make_venv python-packages.txt "foreign bag readers (about 300 MB with the nodes)"
        make_venv python-packages-kilted.txt "nodes of ROS 2 Kilted (about 250 MB)" /kilted
        make_venv python-packages-wheel.txt "what reads the columns of the Python package (about 500 MB)" /wheel
        make_venv python-packages-ros.txt "colcon and ament, which build packages of ROS 2, and what runs notebooks (about 100 MB)" /ros
        make_venv python-packages-moto.txt "S3 on this computer (about 200 MB)" /moto
        make_venv python-packages-engines.txt "Ray, Dask and Spark (about 1200 MB)" /engines
        make_venv python-packages-training.txt "what reads training data (about 700 MB)" /training
        ;;
    dist)
        # readelf is of binutils; dpkg-deb reads the packages of the container image, whose index Debian has signed.
        install_packages "${demo_packages[@]}" binutils dpkg gpgv debian-archive-keyring
        make_venv python-packages-dist.txt "zig (about 300 MB)" /dist
        find_rust
        rustup target add x86_64-unknown-linux-gnu aarch64-unknown-linux-gnu
        tools="${CARGO_TARGET_DIR:-target}/tools"
        for tool in cargo-auditable@0.7.7 cargo-cyclonedx@0.5.9; do
            [ -e "$tools/$tool" ] || { cargo install --quiet --locked --root "$tools" "$tool" && touch "$tools/$tool"; }
        done
        ;;
    arm64)
        # The first three compile and run tests; the others make a whole computer, and a publisher for it.
        install_packages gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static qemu-system-arm mmdebstrap debian-archive-keyring cpio xz-utils e2fsprogs cyclonedds-tools
        find_rust
        rustup target add aarch64-unknown-linux-gnu
        ;;
    *) fail "name what to set up: build, demo, dist, arm64 or nodes" ;;
esac
