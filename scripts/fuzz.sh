#!/usr/bin/env bash
# Runs the fuzz targets of holdall-storage, holdall-model and holdall-web, each for some seconds, without cargo-fuzz: only rustup's nightly toolchain.
#
#   scripts/fuzz.sh                        every target for 60 s
#   scripts/fuzz.sh 600 mcap_reader        one target for ten minutes
#   scripts/fuzz.sh build                  only builds them
#
# Corpora stay below the fuzz crates' target folders and grow from run to run; an input that breaks something is kept beside them and named.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds="${1:-60}"
shift || true

triple=x86_64-unknown-linux-gnu
toolchain="${FUZZ_TOOLCHAIN:-nightly}"
rustup run "$toolchain" rustc --version >/dev/null 2>&1 || {
    echo "fuzz: the toolchain $toolchain is not installed: rustup toolchain install nightly --profile minimal" >&2
    exit 1
}
# What cargo-fuzz would say to the compiler: coverage for libFuzzer, and every check that a debug build has.
export RUSTUP_TOOLCHAIN="$toolchain"
export CARGO_PROFILE_RELEASE_DEBUG=1 CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS=true
export RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
-Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing -Ccodegen-units=1"

# Good files to begin with.
seeds() {
    case "$1" in
        mcap_*) find crates/holdall-storage/tests/data crates/holdall-cli/tests/data -name '*.mcap' -size -64k ;;
        rosbag1_*) find crates/holdall-storage/tests/data -name '*.bag' -size -64k ;;
        # With pages of 512 bytes: a byte that changes is seldom one that nobody reads.
        sqlite3_*) find crates/holdall-storage/fuzz/seeds -name '*.db3' ;;
        http_*|websocket|viewer_*) find crates/holdall-web/fuzz/seeds -name "$1-*" ;;
        leveldb_*) find crates/holdall-storage/tests/data -path '*ldb*' -type f -size -64k ;;
    esac
}

failed=()
for crate in holdall-storage holdall-model holdall-web; do
    folder="$PWD/crates/$crate/fuzz"
    if [ $# -gt 0 ]; then
        is_wanted=
        for name in "$@"; do if [ -e "$folder/fuzz_targets/$name.rs" ]; then is_wanted=1; fi; done
        if [ -z "$is_wanted" ]; then continue; fi
    fi
    # A folder of its own: these flags would make cargo build everything else anew.
    target="${CARGO_TARGET_DIR:-$PWD/target}/fuzz"
    CARGO_TARGET_DIR="$target" cargo build --quiet --manifest-path "$folder/Cargo.toml" --release --bins --target "$triple"
    if [ "$seconds" = build ]; then continue; fi
    for source in "$folder"/fuzz_targets/*.rs; do
        name=$(basename "$source" .rs)
        if [ $# -gt 0 ] && [[ " $* " != *" $name "* ]]; then continue; fi
        corpus="$target/corpus/$name"
        mkdir -p "$corpus" "$target/found"
        while IFS= read -r seed; do
            if [[ "$name" == leveldb_* ]]; then
                # The first byte says which file it is; many databases have files of the same name.
                case "$seed" in
                    *.log) which='\0' ;;
                    *.ldb) which='\1' ;;
                    *MANIFEST*) which='\2' ;;
                    *) which='\3' ;;
                esac
                # shellcheck disable=SC2059
                printf "$which" | cat - "$seed" >"$corpus/seed-$(echo "$seed" | tr / _)"
            else
                cp -f "$seed" "$corpus/"
            fi
        done < <(seeds "$name" 2>/dev/null)
        echo "==> $name, $seconds s"
        said="$target/found/$name.log"
        "$target/$triple/release/$name" -max_total_time="$seconds" -rss_limit_mb=2048 -timeout=20 -max_len=65536 -print_final_stats=1 \
            -artifact_prefix="$target/found/$name-" "$corpus" >"$said" 2>&1 || failed+=("$name")
        grep -E 'SUMMARY|panicked|Test unit|number_of_executed_units|peak_rss' "$said" || true
    done
done
if [ ${#failed[@]} -gt 0 ]; then
    echo "fuzz: ${failed[*]} found something; inputs are in target/fuzz/found" >&2
    exit 1
fi
