#!/bin/sh
# Prose is at most 100 columns wide: comments that have a line to themselves, and documents but for
# their tables and examples. docs/validation.md is written by a program.
set -eu
cd "$(dirname "$0")/.."
export LC_ALL=C.UTF-8

found=$(
    {
        find crates tests fuzz -name '*.rs' -not -path '*/target/*' -exec grep -HnE '^.{101,}$' {} + |
            grep -E '^[^:]+:[0-9]+: *//' || true
        for page in *.md docs/*.md docs/*/*.md; do
            [ "$page" = docs/validation.md ] || [ ! -f "$page" ] && continue
            awk '/^ *```/ { example = !example; print ""; next } example || /^ *[|]/ { print ""; next } 1' "$page" |
                grep -nE '^.{101,}$' | sed "s|^|$page:|" || true
        done
    } | cut -c1-140
)
if [ -n "$found" ]; then
    echo "error: lines of prose over 100 columns:" >&2
    echo "$found" >&2
    exit 1
fi
