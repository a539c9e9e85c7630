# Each target is one script or one cargo call; read those for the details.

.PHONY: help build install uninstall package kernel-package container release trial kernels demo check test test-fast test-long attack soak faults \
	squash-soak bench devices-check ageing reproduce fuzz advisories

help:
	@echo "make build       the optimised chronodisk command, in target/release"
	@echo "make install     the command, its manual pages and completions, below PREFIX (/usr/local) and DESTDIR"
	@echo "make uninstall   removes what make install put there"
	@echo "make package     a Debian package of the same files, in target/package"
	@echo "make kernel-package  the exact clock's kernel as an archive for any host and as a Debian package, in target/package"
	@echo "make container   a container image with that package, in target/container; needs mmdebstrap, no registry"
	@echo "make release     all packages of this version with checksums, in target/release-VERSION; publishes nothing"
	@echo "make trial       a newcomer's first hour on a fresh Debian 12 in a chroot: package in, first result, package out"
	@echo "make kernels     guest tests with the kernels of Debian 13 and of Debian unstable, in a new system"
	@echo "make demo        PostMark on ext4 on four emulated devices, side by side, with a report"
	@echo "make check       every check, and the tests that read the sources and the output of the command"
	@echo "make test        every check and every test, those that take long in a short form"
	@echo "make test-fast   the tests without a guest that take few seconds: under two minutes once they are built"
	@echo "make test-long   what make test names as not run: hours; PARTS=\"forms soak\" picks some; scheduled weekly"
	@echo "make attack      the standing attacker for an hour; SECONDS=10800 SEED=17 ONE=an attack's seed CD=another build"
	@echo "make soak        guests, mount and whatif with 100 kills, guests with 500 of any process; docs/durability.md with 100 in each cell"
	@echo "make faults      10,000 histories of each store and contract on a host that fails"
	@echo "make squash-soak 50 histories per file system, each cut at 50 places, on a squashing store and on a full one"
	@echo "make bench       the benchmarks"
	@echo "make devices-check  every profile under plain and mixed loads, beside what was published of its device; kept in experiments/results"
	@echo "make ageing      drawn flash drives against written ones at 16 GB; time of ageing 1 and 4 TB; collecting in time"
	@echo "make reproduce   every table and figure of the five papers, 10 hours; PAPER=memulator; TIER=slow: the papers' sizes, days"
	@echo "make fuzz        each fuzz target for FUZZ_SECONDS (600)"
	@echo "make advisories  known vulnerabilities of the dependencies (fetches their database)"

build:
	cargo build --release --locked --package chronodisk-cli

# PREFIX, DESTDIR and CARGO_PROFILE reach the script through the environment.
install:
	@scripts/install

uninstall:
	@scripts/install --uninstall

package:
	@scripts/package

kernel-package:
	@scripts/package-kernel

container:
	@scripts/container

release:
	@scripts/release

trial:
	@scripts/trial

kernels:
	@scripts/kernels

demo:
	scripts/demo

check:
	scripts/test --checks

test:
	scripts/test

test-fast:
	scripts/test --fast

test-long:
	scripts/test-long $(PARTS)

# The shell has a variable SECONDS of its own.
attack:
	@SECONDS_MAX=$(if $(SECONDS),$(SECONDS),3600) scripts/attack

soak:
	CHRONODISK_SOAK_KILLS=100 cargo test --locked --workspace --test guest -- endings --nocapture
	CHRONODISK_SOAK_KILLS=100 cargo test --locked --workspace --test native -- endings --nocapture
	CHRONODISK_KILLS=100 cargo test --locked --workspace --test durability -- --nocapture

# One that fails is repeated by CHRONODISK_FAULT_FIRST=its seed CHRONODISK_FAULT_SEEDS=1 CHRONODISK_FAULT_TRACE=1.
faults:
	CHRONODISK_FAULT_SEEDS=10000 cargo test --release --locked --workspace --test faults -- --nocapture

# Optimised, and in memory if the host has such a folder: each cut writes and reads two devices several times. Less:
# CHRONODISK_SOAK_FILE_SYSTEM=xfs CHRONODISK_SOAK_HISTORIES=5 CHRONODISK_SOAK_CUTS=20, from CHRONODISK_SOAK_FIRST on.
SOAK_FOLDER := $(firstword $(wildcard /dev/shm) /tmp)
squash-soak:
	cargo build --release --locked --package chronodisk-cli --examples
	TMPDIR=$(SOAK_FOLDER) cargo test --release --locked --package chronodisk-cli --test guest -- \
		twins_agree_for_long --ignored --nocapture

bench:
	scripts/bench

devices-check:
	$(MAKE) -C experiments devices-check

reproduce:
	$(MAKE) -C experiments reproduce

ageing:
	for test in drawn_16_gb drive_of_1_tb drive_of_4_tb that_mqsim_gives_up; do \
		cargo test --locked --release --package chronodisk-device --lib -- $$test --ignored --nocapture || exit; \
	done

fuzz:
	scripts/fuzz

advisories:
	cargo deny check advisories
