#!/bin/sh
# The compiler of this workspace's own crates (.cargo/config.toml).
#
# Builds with debug assertions, which are those for tests, use clippy's compiler: one build compiles
# and lints, and scripts/run-tests.py fails on any warning. It turns off some optimisations, so all
# other builds, the shipped ones among them, use rustc, and so does a machine without clippy.
#
# The unit tests of arrays and pools are not optimised: that takes longer than they run.
#
# usage: rustc-lints.sh RUSTC ARGUMENT...
case " $* " in
*" --print"* | *" opt-level=3 "* | *" opt-level=s "*) exec "$@" ;;
*" crates/array/src/lib.rs "*" --test "* | *" crates/pool/src/lib.rs "*" --test "*) set -- "$@" -C opt-level=0 ;;
esac
command -v clippy-driver >/dev/null 2>&1 || exec "$@"
exec clippy-driver "$@"
