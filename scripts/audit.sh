#!/bin/sh
# Known faults of the dependencies: compares Cargo.lock with the RustSec advisories. Without an
# argument the database is cloned; with one, DIR is a clone of it, and no network is needed.
# Usage: scripts/audit.sh [DIR]
set -eu
cd "$(dirname "$0")/.."
export LC_ALL=C

database=${1-}
if [ -z "$database" ]; then
    database=$(mktemp -d)
    trap 'rm -rf "$database"' EXIT
    git clone --quiet --depth 1 https://github.com/RustSec/advisory-db "$database" || {
        echo "error: the advisories cannot be cloned from github.com/RustSec/advisory-db" >&2
        echo "hint: scripts/audit.sh DIR takes a clone that is here already" >&2
        exit 1
    }
fi
[ -d "$database/crates" ] || {
    echo "error: $database is no clone of the RustSec advisories: it has no folder crates" >&2
    exit 1
}

# "name version" of each package, then the advisories of its name that hold for its version.
found=$(
    awk '$1 == "name" { name = $3 } $1 == "version" && name { print name, $3; name = "" }' Cargo.lock |
        tr -d '"' | while read -r name version; do
        for advisory in "$database/crates/$name"/*.md; do
            [ -e "$advisory" ] || continue
            awk -v name="$name" -v version="$version" '
                function part(text, index_, numbers) {
                    sub(/[-+].*/, "", text)
                    split(text, numbers, ".")
                    return numbers[index_] + 0
                }
                function parts(text, numbers) { sub(/[-+].*/, "", text); return split(text, numbers, ".") }
                # Below, at or above: -1, 0, 1.
                function compare(one, other, index_) {
                    for (index_ = 1; index_ <= 3; index_++) {
                        if (part(one, index_) < part(other, index_)) return -1
                        if (part(one, index_) > part(other, index_)) return 1
                    }
                    # A version with a suffix is before the one without.
                    return (other ~ /-/) - (one ~ /-/)
                }
                # Whether the first `count` numbers are the same.
                function same(one, other, count, index_) {
                    for (index_ = 1; index_ <= count; index_++)
                        if (part(one, index_) != part(other, index_)) return 0
                    return 1
                }
                function meets_one(term, operator, wanted, given, numbers, fixed) {
                    gsub(/ /, "", term)
                    operator = term; sub(/[0-9].*/, "", operator)
                    wanted = term; sub(/^[<>=^~]+/, "", wanted)
                    given = compare(version, wanted)
                    if (operator == ">=") return given >= 0
                    if (operator == ">") return given > 0
                    if (operator == "<") return given < 0
                    if (operator == "<=") return given <= 0
                    if (operator == "=") return given == 0
                    fixed = 1
                    if (operator == "~") fixed = parts(wanted, numbers) > 1 ? 2 : 1
                    else while (fixed < 3 && part(wanted, fixed) == 0) fixed++
                    return given >= 0 && same(version, wanted, fixed)
                }
                function meets(requirement, terms, count, index_) {
                    count = split(requirement, terms, ",")
                    for (index_ = 1; index_ <= count; index_++)
                        if (!meets_one(terms[index_])) return 0
                    return 1
                }
                /^```/ { if (header++) exit }
                /^withdrawn/ { safe = 1 }
                /^informational/ { kind = $3; gsub(/"/, "", kind) }
                /^id/ { id = $3; gsub(/"/, "", id) }
                /^(patched|unaffected)/ { in_list = 1 }
                in_list {
                    rest = $0
                    while (match(rest, /"[^"]*"/)) {
                        if (meets(substr(rest, RSTART + 1, RLENGTH - 2))) safe = 1
                        rest = substr(rest, RSTART + RLENGTH)
                    }
                    if (/\]/) in_list = 0
                }
                END { if (id && !safe) print id, name, version, (kind ? kind : "vulnerability") }
            ' "$advisory"
        done
    done | sort -u
)
if [ -n "$found" ]; then
    echo "$found"
    echo "see https://rustsec.org/advisories/ID" >&2
    case $found in *vulnerability*|*unsound*) exit 1 ;; esac
else
    echo "no known faults in the $(grep -c '^name = ' Cargo.lock) packages of Cargo.lock"
fi
