#!/bin/sh
# What documents refer to exists: the file of a relative link and, behind `#`, its heading; each
# `docs/….md` that code, scripts or documents name; files of code that documents name; the tests
# that the invariants name, and each "invariant I7" that code cites.
set -eu
cd "$(dirname "$0")/.."
export LC_ALL=C.UTF-8

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
find . -name '*.md' -not -path './target/*' -not -path './.git/*' -not -path './fuzz/target/*' \
    -not -path './fuzz/corpus/*' | sed 's|^\./||' | sort >"$work/pages"

# "H page slug" for each heading, as forges make it; "L page line target" for each relative link.
xargs awk '
    FNR == 1 { example = 0 }
    /^ *```/ { example = !example; next }
    example { next }
    /^#+ / {
        slug = tolower($0)
        sub(/^#+ +/, "", slug)
        gsub(/[^[:alnum:] _-]/, "", slug)
        gsub(/ /, "-", slug)
        print "H", FILENAME, slug
    }
    {
        rest = $0
        gsub(/`[^`]*`/, "", rest)
        while (match(rest, /\]\([^) ]+\)/)) {
            target = substr(rest, RSTART + 2, RLENGTH - 3)
            rest = substr(rest, RSTART + RLENGTH)
            if (target !~ /^[a-z]+:/) print "L", FILENAME, FNR, target
        }
    }' <"$work/pages" >"$work/found"
grep '^H ' "$work/found" >"$work/headings"

grep '^L ' "$work/found" | while read -r _ page line target; do
    file=${target%%#*}
    case $file in
        "") file=$page ;;
        *) file=$(dirname "$page")/$file ;;
    esac
    file=$(realpath -m --relative-to=. "$file")
    if [ ! -e "$file" ]; then
        echo "$page:$line: $target: there is no $file"
    elif [ "$target" != "${target#*#}" ] && ! grep -qxF "H $file ${target#*#}" "$work/headings"; then
        echo "$page:$line: $target: $file has no such heading"
    fi
done >"$work/broken"

grep -rnoE '\bdocs/[A-Za-z0-9_/-]+\.md\b' Makefile ./*.md docs scripts crates tests fuzz dist \
    --include='*.rs' --include='*.md' --include='*.sh' --include='*.toml' --include=Makefile \
    --exclude-dir=target --exclude-dir=corpus | while IFS=: read -r page line file; do
    [ -e "$file" ] || echo "${page#./}:$line: there is no $file"
done >>"$work/broken"

grep -rnoE '\b(crates|scripts|web|dist|studies)/[A-Za-z0-9_./-]+\.(rs|sh|py|toml|js|mjs|yml|json|service|conf)\b' \
    ./*.md docs --include='*.md' | while IFS=: read -r page line file; do
    [ -e "$file" ] || echo "${page#./}:$line: there is no $file"
done >>"$work/broken"

invariants=docs/internals/invariants.md
for page in $invariants docs/testing.md; do
    grep -oE '`[a-z/_]+\.rs`' "$page" | tr -d '`' | sort -u | while read -r file; do
        [ -n "$(find crates tests -path "*/${file#crates/}" -not -path '*/target/*' | head -1)" ] ||
            echo "$page: there is no $file"
    done
done >>"$work/broken"
grep -rnE '[Ii]nvariants? [IC][0-9]' crates tests --include='*.rs' | while IFS= read -r line; do
    for cited in $(echo "$line" | grep -oE '\b[IC][0-9]+\b'); do
        grep -qF "**$cited." $invariants ||
            echo "$(echo "$line" | cut -d: -f1,2): $cited is not in $invariants"
    done
done >>"$work/broken"

if [ -s "$work/broken" ]; then
    echo "error: links that lead nowhere:" >&2
    cat "$work/broken" >&2
    exit 1
fi
