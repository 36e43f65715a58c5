#!/bin/sh
# Checks that a program cannot break its own engine: the switches of tests (crates/array/src/mutation.rs) are
# compiled only where debug assertions are on, and a program to be used has none of them.
#
# usage: scripts/shipped.sh PATH-TO-STRIPEWISE
set -eu
stripewise=${1:?usage: scripts/shipped.sh PATH-TO-STRIPEWISE}
if grep -q 'stripewise mutation switches' "$stripewise"; then
    echo "$stripewise contains mutation switches; hint: build it with debug-assertions off" >&2
    exit 1
fi
if said=$("$stripewise" simulate torture --mutation replay-without-redo --runs 1 2>&1); then
    echo "$stripewise accepts simulate torture --mutation" >&2
    exit 1
fi
case $said in
*'cannot be broken on purpose'*) ;;
*)
    echo "$stripewise does not refuse simulate torture --mutation as it should: $said" >&2
    exit 1
    ;;
esac
