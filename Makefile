# Stripewise: what people do with a checkout. Each target sets up what it needs (scripts/need.sh) and nothing more.
# Options for the evaluation go through ARGS: make evaluate ARGS="--quick --layouts raid5,raid6"

.DEFAULT_GOAL := help
.PHONY: help evaluate check test test-guest test-iscsi soak bench bench-md fuzz audit build package-files \
	install deb deb-test wheel clean need-build need-check need-test need-soak need-bench need-bench-md \
	need-fuzz need-deb need-guest need-iscsi

ARGS ?=
FUZZERS ?= sections journal_head pages packed drive pool manifest nbd vhost stream
FUZZ_SECONDS ?= 60
SOAK_SECONDS ?= 600
# The tests that go through seeds: in `make soak` each of them goes on for SOAK_SECONDS.
SWEEPS = model_check write_hole power_cut::flushed_data pool_random conversion_random \
	checksums::lost_and_misdirected cuts::acknowledged_records
PREFIX ?= /usr/local

help:
	@echo 'make evaluate   build, then measure RAID layouts on file-backed drives; writes report.html (about 8 minutes)'
	@echo '                ARGS="--quick" for one minute; ARGS="--help" for every option'
	@echo 'make check      formatting, lints, unit tests and everything in virtual time: before each commit'
	@echo 'make test       formatting, lints and all tests'
	@echo 'make soak       long sweeps of seeds; the Python package on a cluster of Ray; file systems, fio, a database and misbehaving clients on volumes,'
	@echo '                ten minutes each; SOAK_SECONDS=60 for one'
	@echo 'make test-guest a Linux guest in QEMU whose disks are volumes over vhost-user (two minutes; a download of 30 MB once)'
	@echo 'make test-iscsi volumes over iSCSI: tgt on mounted volumes, by the test suite of libiscsi (half a minute)'
	@echo 'make bench      speed of the parity kernels, the layouts, the engine and modelled drives; journals also on paced files; the start of serve;'
	@echo '                parity in Python beside pyeclib and zfec; FUSE beside btrfs'
	@echo 'make bench-md   the engine and Linux md in turns in a guest (User-Mode Linux, as root; a quarter of an hour at most, and a download before the first run); ARGS="--quick"'
	@echo 'make fuzz       feeds broken drives to every decoder, one minute each; FUZZ_SECONDS=600 for ten'
	@echo 'make audit      compares the dependencies with the RustSec advisories; ADVISORIES=DIR for a clone that is here'
	@echo 'make build      the release binary'
	@echo 'make install    the release binary into $$(PREFIX)/bin ($(PREFIX)/bin); unit, pages, completions'
	@echo 'make deb        a Debian package in target/debian'
	@echo 'make deb-test   the package in a clean Debian: installed, serving, upgraded, purged (as root; a download)'
	@echo 'make wheel      the Python package in target/wheels'
	@echo 'make clean      removes what was built'

evaluate: build
	@cargo run --release --quiet --locked -p stripewise -- evaluate $(ARGS)

# Formatting and texts: what needs no compiler.
define CHECK_TEXTS
	cargo fmt --all --check
	sh scripts/columns.sh
	sh scripts/links.sh
	sh scripts/names.sh
	scripts/phrases.py
endef

# Builds, lints and tests are one cargo command and one queue (scripts/run-tests.py). Always the whole workspace, so that
# nothing is built twice with other features: the targets called `it` run in virtual time, those called `real_time` do not.
check: need-check
	$(CHECK_TEXTS)
	scripts/run-tests.py --virtual $(ARGS)
	@echo 'make check: formatting, lints, unit tests and tests in virtual time passed'

test: need-test
	$(CHECK_TEXTS)
	scripts/run-tests.py $(ARGS)
	scripts/python-tests.sh
	@echo 'make test: formatting, lints and all tests passed'

# One after the other, as their figures say how long clients waited. The build of the tests, whose assertions are on.
soak: need-soak build
	@echo 'beyond make test: more seeds of $(SWEEPS); fresh seeds of torture;'
	@echo 'the systemd unit; programs on volumes for $(SOAK_SECONDS) s each'
	STRIPEWISE_TEST_SECONDS='$(SOAK_SECONDS)' cargo test --workspace --locked --quiet --lib --test it -- $(SWEEPS)
	scripts/soak-torture.sh $(or $(CARGO_TARGET_DIR),target)/release/stripewise '$(SOAK_SECONDS)'
	scripts/unit-in-systemd.sh $(or $(CARGO_TARGET_DIR),target)/release/stripewise
	scripts/fstab-in-systemd.sh $(or $(CARGO_TARGET_DIR),target)/release/stripewise
	scripts/openapi.sh $(or $(CARGO_TARGET_DIR),target)/release/stripewise
	scripts/python-release.sh cluster
	SOAK_SECONDS='$(SOAK_SECONDS)' cargo test --locked --quiet -p stripewise --test real_time console:: -- --test-threads 1
	SOAK_SECONDS='$(SOAK_SECONDS)' cargo test --workspace --locked --quiet --test clients -- --nocapture --test-threads 1 $(ARGS)

# Volumes as disks of a Linux guest, in software emulation.
test-guest: need-guest build
	scripts/guest-vhost.sh $(or $(CARGO_TARGET_DIR),target)/release/stripewise

test-iscsi: need-iscsi build
	timeout 900 scripts/test-iscsi.sh $(or $(CARGO_TARGET_DIR),target)/release/stripewise

# FUSE last, about three minutes and ten at most; it is passed over, and says so, where root, FUSE, loop devices or btrfs are not there.
bench: need-bench build
	cargo bench --workspace --locked --benches $(ARGS)
	timeout 600 sh scripts/bench-causes.sh $(or $(CARGO_TARGET_DIR),target)/release/stripewise
	scripts/python-release.sh bench
	timeout 900 sh scripts/bench-cores.sh $(or $(CARGO_TARGET_DIR),target)/release/stripewise
	timeout 600 sh scripts/bench-fuse.sh $(or $(CARGO_TARGET_DIR),target)/release/stripewise

bench-md: need-bench-md build
	cargo build --release --locked -p stripewise-array --example array_load
	scripts/bench-md.sh $(ARGS) $(or $(CARGO_TARGET_DIR),target)/release/stripewise $(or $(CARGO_TARGET_DIR),target)/release/examples/array_load

# Beginning with pieces of the images that the tests keep. Without a sanitizer, since it needs another compiler, and `unsafe` code is
# not what is asked here.
fuzz: need-fuzz
	cargo run --locked --quiet -p stripewise-pool --example fuzz_corpus -- fuzz/corpus
	cargo run --locked --quiet -p stripewise-export --example nbd_corpus -- fuzz/corpus
	@set -e; for target in $(FUZZERS); do \
		echo "fuzzing $$target for $(FUZZ_SECONDS) s"; \
		cargo fuzz run -s none "$$target" -- -max_total_time=$(FUZZ_SECONDS) -rss_limit_mb=1024 -timeout=10 -max_len=65536; \
	done

audit:
	@sh scripts/audit.sh $(ADVISORIES)

build: need-build
	cargo build --release --locked -p stripewise
	@scripts/shipped.sh $(or $(CARGO_TARGET_DIR),target)/release/stripewise

# The stripped program, unit, manual pages and completions. BINDIR is where the program will be.
BINDIR ?= $(PREFIX)/bin
PROGRAM = $(or $(CARGO_TARGET_DIR),target)/release/stripewise
package-files: build
	rm -rf target/package && mkdir -p target/package/units
	install -s -m 755 $(PROGRAM) target/package/stripewise
	for file in stripewise.service stripewise-fuse.conf stripewise-mount.conf stripewise-smart.conf mount.stripewise; do \
		sed 's|@BINDIR@|$(BINDIR)|' dist/$$file > target/package/$$file || exit 1; \
	done
	cp target/package/stripewise.service target/package/units
	$(PROGRAM) --quiet man target/package/man
	echo '.so man1/stripewise-mount.1' > target/package/man/mount.stripewise.8
	for shell in bash zsh fish; do $(PROGRAM) completions $$shell > target/package/$$shell || exit 1; done

install: package-files
	install -D -m 755 target/package/stripewise '$(PREFIX)/bin/stripewise'
	install -D -m 755 target/package/mount.stripewise '$(PREFIX)/sbin/mount.stripewise'
	@# mount(8) looks for it in /sbin alone.
	if [ '$(PREFIX)' = /usr/local ]; then ln -sf /usr/local/sbin/mount.stripewise /sbin/mount.stripewise; fi
	install -D -m 644 target/package/stripewise.service '$(PREFIX)/lib/systemd/system/stripewise.service'
	install -D -m 644 target/package/stripewise-fuse.conf '$(PREFIX)/share/stripewise/stripewise-fuse.conf'
	install -D -m 644 target/package/stripewise-mount.conf '$(PREFIX)/share/stripewise/stripewise-mount.conf'
	install -D -m 644 target/package/stripewise-smart.conf '$(PREFIX)/share/stripewise/stripewise-smart.conf'
	install -d '$(PREFIX)/share/man/man1' && install -m 644 target/package/man/*.1 '$(PREFIX)/share/man/man1'
	install -D -m 644 target/package/man/mount.stripewise.8 '$(PREFIX)/share/man/man8/mount.stripewise.8'
	install -D -m 644 target/package/bash '$(PREFIX)/share/bash-completion/completions/stripewise'
	install -D -m 644 target/package/zsh '$(PREFIX)/share/zsh/site-functions/_stripewise'
	install -D -m 644 target/package/fish '$(PREFIX)/share/fish/vendor_completions.d/stripewise.fish'
	install -d '$(PREFIX)/share/stripewise/prometheus' '$(PREFIX)/share/stripewise/grafana'
	install -m 644 dist/prometheus/stripewise.rules.yml '$(PREFIX)/share/stripewise/prometheus'
	install -m 644 dist/grafana/stripewise.json '$(PREFIX)/share/stripewise/grafana'

# A Debian package in target/debian.
deb: need-deb
	$(MAKE) package-files BINDIR=/usr/bin
	rm -rf target/debian
	cargo deb --no-build --locked -p stripewise --output target/debian/
	lintian --fail-on error target/debian/*.deb

deb-test: deb
	scripts/deb-in-debian.sh target/debian/*.deb

# The Python package, with the optimisations of a release: target/wheels/stripewise-*.whl.
wheel: need-build
	scripts/python-wheel.sh

clean:
	cargo clean

need-build:
	@scripts/need.sh build

need-check:
	@scripts/need.sh check

need-test:
	@scripts/need.sh test
	@scripts/web-tools.sh || echo 'going on without them: tests of the web console are passed over'
	@scripts/python-tools.sh || echo 'going on without it: tests of the Python package are passed over'

need-soak:
	@scripts/need.sh soak
	@scripts/web-tools.sh || echo 'going on without them: tests of the web console are passed over'

need-bench:
	@scripts/need.sh bench

need-bench-md:
	@scripts/need.sh bench-md

need-deb:
	@scripts/need.sh deb

need-guest:
	@scripts/need.sh guest

need-iscsi:
	@scripts/need.sh iscsi

need-fuzz:
	@scripts/need.sh fuzz
