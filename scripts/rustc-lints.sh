#!/bin/sh
# The compiler for this workspace's own crates (.cargo/config.toml): clippy's, so that one build
# compiles and lints. scripts/run-tests.py fails on any warning. Clippy's compiler turns off some
# optimisations, so optimised builds, the shipped ones among them, use rustc, and so does a machine
# without clippy.
#
# usage: rustc-lints.sh RUSTC ARGUMENT...
case " $* " in
*" opt-level=3 "* | *" opt-level=s "* | *" --print"*) exec "$@" ;;
esac
if command -v clippy-driver >/dev/null 2>&1; then exec clippy-driver "$@"; fi
exec "$@"
