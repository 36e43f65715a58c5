# Stripewise: what people do with a checkout. Each target sets up what it needs (scripts/need.sh) and nothing more.
# Options for the evaluation go through ARGS: make evaluate ARGS="--quick --layouts raid5,raid6"

.DEFAULT_GOAL := help
.PHONY: help evaluate test bench build install clean need-build need-test need-bench

ARGS ?=
PREFIX ?= /usr/local

help:
	@echo 'make evaluate   build, then measure RAID layouts on file-backed drives; writes report.html (about 8 minutes)'
	@echo '                ARGS="--quick" for one minute; ARGS="--help" for every option'
	@echo 'make test       formatting, lints and all tests'
	@echo 'make bench      speed of the parity kernels, the layouts and the engine, as ratios; journals also on paced files (3 minutes)'
	@echo 'make build      the release binary'
	@echo 'make install    the release binary into $$(PREFIX)/bin ($(PREFIX)/bin)'
	@echo 'make clean      removes what was built'

evaluate: build
	@cargo run --release --quiet --locked -p stripewise -- evaluate $(ARGS)

test: need-test
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked --quiet -- -D warnings
	cargo test --workspace --locked --quiet
	@echo 'make test: formatting, lints and all tests passed'

bench: need-bench
	cargo bench --workspace --locked --benches $(ARGS)

build: need-build
	cargo build --release --locked -p stripewise

install: build
	install -D -m 755 $(or $(CARGO_TARGET_DIR),target)/release/stripewise '$(PREFIX)/bin/stripewise'

clean:
	cargo clean

need-build:
	@scripts/need.sh build

need-test:
	@scripts/need.sh test

need-bench:
	@scripts/need.sh bench
