# The everyday commands. `make` alone lists them.

export PATH := $(or $(CARGO_HOME),$(HOME)/.cargo)/bin:$(PATH)
HOLDALL_VENV ?= $(CURDIR)/.venv
export HOLDALL_VENV
# Where programs are put: cargo's target folder, or the one that CARGO_TARGET_DIR names.
TARGET := $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)

# What the program can do besides cargo's default; `make build FEATURES=` leaves it out and builds in half the time.
FEATURES ?= zenoh,iceoryx2
# The same where the whole workspace is looked at: one set of features for lint, unit, sim, gate and e2e, so that CI compiles once.
TESTED := holdall-transport/dds,holdall-cli/zenoh,holdall-cli/iceoryx2,holdall-cli/openh264

# The programs that `sim`, `gate` and `e2e` run, as `unit` has built them: with a test among the targets cargo counts in what only tests ask of
# libraries, and so compiles nothing again.
PROGRAMS := cargo build -q --workspace --features $(TESTED) --bin holdall --bin holdall-bench --bin holdall-sim --lib --test program

.PHONY: help demo test build install install-bench wheel check lint unit sim gate e2e dist check-arm64 test-arm64 site setup-build setup-demo setup-nodes setup-dist setup-arm64 clean

help: ## list these commands
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

# What `demo` builds; `lint` checks that it compiles.
DEMO_FEATURES := --no-default-features --features dds

# DDS only, and without optimizing the whole program at once: a first build in a few minutes.
demo: setup-build setup-demo ## record real ROS 2 nodes, look at the bag, play it back
	cargo build --profile demo -p holdall-cli $(DEMO_FEATURES)
	@HOLDALL_BIN=$(TARGET)/demo/holdall $(HOLDALL_VENV)/bin/python demo/run.py

# Every seed of the simulator that ever failed, and every mutation, is in `unit`; `sim` looks for new ones. The end-to-end tests wait more than
# they compute, so they run beside the rest; cargo's lock would make them wait for clippy, so the programs are built before.
test: setup-build setup-nodes ## run the whole test suite
	$(PROGRAMS)
	@scripts/side-by-side.sh "$(MAKE) lint unit" "$(MAKE) e2e sim gate PROGRAMS=true"

build: setup-build ## build the program: target/release/holdall
	cargo build --release -p holdall-cli --features "$(FEATURES)"
	@if [ "$(TARGET)" != "$(CURDIR)/target" ]; then mkdir -p target/release && cp -f $(TARGET)/release/holdall target/release/holdall; fi

PREFIX ?= $(HOME)/.local

# Without its debug information, which stays in target/release.
install: build ## install the program, its manual pages and completions below PREFIX (~/.local)
	install -D -m 755 -s target/release/holdall $(DESTDIR)$(PREFIX)/bin/holdall
	target/release/holdall man --dir $(DESTDIR)$(PREFIX)/share/man/man1
	mkdir -p $(DESTDIR)$(PREFIX)/share/bash-completion/completions
	target/release/holdall completion bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/holdall
	@echo 'installed: $(DESTDIR)$(PREFIX)/bin/holdall'
	@case ":$$PATH:" in *":$(PREFIX)/bin:"*) ;; *) echo 'not in PATH yet: export PATH="$(PREFIX)/bin:$$PATH"' ;; esac
	@echo 'record everything that is heard: holdall record -a    what else it does: holdall --help'

# Beside `holdall`, which runs it; of the same tree, because both start each other.
install-bench: setup-build ## install holdall-bench, the program that `holdall bench` runs, below PREFIX
	cargo build --release -p holdall-bench --features "$(FEATURES)"
	install -D -m 755 -s $(TARGET)/release/holdall-bench $(DESTDIR)$(PREFIX)/bin/holdall-bench
	$(TARGET)/release/holdall-bench man --dir $(DESTDIR)$(PREFIX)/share/man/man1

check: ## the inner loop: types and unit tests of everything but the heavy transports
	cargo test -q --workspace --no-default-features --lib

lint: setup-build ## formatting, clippy, and the rules of the house
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --features $(TESTED) -- -D warnings
	cargo clippy -p holdall-cli $(DEMO_FEATURES) -- -D warnings
	cargo run -q -p xtask -- tidy

unit: setup-build setup-nodes ## all Rust tests, those against real ROS 2 nodes included
	cargo test --workspace --features $(TESTED)

# Always the same seeds, so that a run says something about the change, from a block without worlds that take a minute by themselves;
# `make sim SIM="--minutes 10 --fresh"` looks for new faults.
SIM ?= --first 1001000 --seeds 2000
# Worlds whose clocks jump are longer.
CLOCKS ?= --first 3000000000 --seeds 1000

sim: setup-build ## a minute of simulated recordings and crashes; docs/proofs.md
	$(PROGRAMS)
	$(TARGET)/debug/holdall-sim $(SIM)
	$(TARGET)/debug/holdall-sim $(CLOCKS)

gate: setup-build ## what a message costs in instructions, allocations and copies, against the committed baseline
	$(PROGRAMS)
	$(TARGET)/debug/holdall bench gate

# Which of them, in pytest's words: `make e2e E2E='-k launch'`.
E2E ?=

e2e: setup-build setup-nodes ## the program against real ROS 2 nodes and foreign readers
	$(PROGRAMS)
	HOLDALL_ALL_TRANSPORTS=1 HOLDALL_BIN=$(TARGET)/debug/holdall scripts/e2e.sh $(HOLDALL_VENV)/bin/python $(E2E)

# mdBook is built once, from crates.io.
MDBOOK_VERSION := 0.5.4
MDBOOK := $(TARGET)/tools/bin/mdbook

site: setup-build ## the documents as a web site: target/site/html
	$(PROGRAMS)
	@test -x $(MDBOOK) || cargo install mdbook --version $(MDBOOK_VERSION) --locked --root $(TARGET)/tools
	scripts/site.py $(TARGET)/debug/holdall target/site
	$(MDBOOK) build target/site

# DIST="--only deb" builds a part.
dist: setup-build setup-dist ## archive, Debian package, wheel and container image for old and new systems: target/dist
	scripts/dist.py $(DIST)

# With a compiler for ARM64, so not in `lint`.
check-arm64: setup-build setup-dist ## see whether everything compiles for ARM64
	scripts/dist.py --arch aarch64 --check

ARM64_PACKAGES := -p holdall-model -p holdall-io -p holdall-storage -p holdall-record
# What the emulator of one process lacks: programs that start themselves, round trips of TCP, and io_uring, which scripts/arm64-machine.sh has.
ARM64_LACKS := lock::tests::a_lock_ends_with_its_process_also_when_that_is_killed \
	unfinished::tests::nothing_is_made_again_after_the_removal unfinished::tests::what_was_started_is_ended_and_what_is_unfinished_is_removed \
	socket::tests::what_the_other_side_has_not_got_is_counted memory_file_system_is_written_buffered

test-arm64: setup-build setup-arm64 ## unit and property tests of the libraries as ARM64 programs, in emulation
	CARGO_PROFILE_DEV_DEBUG=0 CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
	CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64-static -L /usr/aarch64-linux-gnu" \
	cargo test --no-fail-fast --target aarch64-unknown-linux-gnu $(ARM64_PACKAGES) --lib --tests -- $(ARM64_LACKS:%=--skip %)

setup-arm64:
	@scripts/setup.sh arm64

setup-dist:
	@scripts/setup.sh dist

setup-build:
	@scripts/setup.sh build

setup-demo:
	@scripts/setup.sh demo

setup-nodes:
	@scripts/setup.sh nodes

wheel: build ## build the Python package, with the program in it: target/wheels/holdall-*.whl
	cargo build --release -p holdall-python
	scripts/pack-wheel.py $(TARGET)/release/libholdall_python.so target/wheels $(TARGET)/release/holdall

clean: ## remove what was built here (the venv and the demo's bag too)
	rm -rf target .venv demo-out
