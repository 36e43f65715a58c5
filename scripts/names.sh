#!/bin/sh
# The name of a test states its promise: at most 50 characters, and never beginning with `what_`.
# A test is the function that follows a `#[test]`; other attributes and comments may stand between.
set -eu
cd "$(dirname "$0")/.."
export LC_ALL=C.UTF-8

found=$(
    find crates/*/src crates/*/tests tests -name '*.rs' -exec awk '
        FNR == 1 { is_test = 0 }
        /^[ \t]*#\[([a-z_]+::)?test[]( ]/ { is_test = 1 }
        is_test && !/^[ \t]*\/\// && match($0, /(^|[ \t])fn [A-Za-z0-9_]+/) {
            name = substr($0, RSTART, RLENGTH)
            sub(/^[ \t]*fn /, "", name)
            if (length(name) > 50) print FILENAME ":" FNR ": " name ": " length(name) " characters"
            if (name ~ /^what_/) print FILENAME ":" FNR ": " name ": begins with what_"
            is_test = 0
        }' {} + | sort
)
if [ -n "$found" ]; then
    echo "error: names of tests that do not state a promise in at most 50 characters:" >&2
    echo "$found" >&2
    exit 1
fi
