# Each target is one script or one cargo call; read those for the details.

.PHONY: help demo test bench fuzz advisories

help:
	@echo "make demo        PostMark on ext4 on three emulated devices, side by side"
	@echo "make test        every check and every test"
	@echo "make bench       the benchmarks"
	@echo "make fuzz        each fuzz target for FUZZ_SECONDS (600)"
	@echo "make advisories  known vulnerabilities of the dependencies (fetches their database)"

demo:
	scripts/demo

test:
	scripts/test

bench:
	scripts/bench

fuzz:
	scripts/fuzz

advisories:
	cargo deny check advisories
