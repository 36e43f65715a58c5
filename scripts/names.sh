#!/bin/sh
# The name of a test states its promise: at most 50 characters, and never beginning with `what_`.
# A test is the function that follows a `#[test]`; other attributes and comments may stand between. So is
# the promise of several tests in `test_cases!` (tests/cases.rs).
set -eu
cd "$(dirname "$0")/.."
export LC_ALL=C.UTF-8

found=$(
    find crates/*/src crates/*/tests tests -name '*.rs' -exec awk '
        function check(name) {
            if (length(name) > 50) print FILENAME ":" FNR ": " name ": " length(name) " characters"
            if (name ~ /^what_/) print FILENAME ":" FNR ": " name ": begins with what_"
        }
        FNR == 1 { is_test = 0; is_cases = 0 }
        /^[ \t]*#\[([a-z_]+::)?test[]( ]/ { is_test = 1 }
        /^[ \t]*test_cases! \{/ { is_cases = 1 }
        is_test && !/^[ \t]*\/\// && match($0, /(^|[ \t])fn [A-Za-z0-9_]+/) {
            name = substr($0, RSTART, RLENGTH)
            sub(/^[ \t]*fn /, "", name)
            check(name)
            is_test = 0
        }
        is_cases && match($0, /^[ \t]*[A-Za-z0-9_]+ = /) {
            check($1)
            is_cases = 0
        }' {} + | sort
)
if [ -n "$found" ]; then
    echo "error: names of tests that do not state a promise in at most 50 characters:" >&2
    echo "$found" >&2
    exit 1
fi
