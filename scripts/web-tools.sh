#!/bin/sh
# Fetches with npm the programs that test the web console, at pinned versions, into target/web-
# tools: Playwright (which uses the system's Chromium), axe, the TypeScript compiler, and the
# libraries' types. Nothing of it is part of the program. Says what is missing, and fails, where
# there is no node, npm or network.
set -eu
cd "$(dirname "$0")/.."
to=${CARGO_TARGET_DIR:-target}/web-tools
wanted='playwright-core@1.65.1 axe-core@4.14.1 typescript@7.0.2'
wanted="$wanted preact@11.2.0 @preact/signals@2.11.4 htm@3.1.1 uplot@1.6.32"
[ "$(cat "$to/versions" 2>/dev/null)" != "$wanted" ] || exit 0
for program in node npm; do
    if ! command -v "$program" >/dev/null 2>&1; then
        echo "the tests of the web console need $program: apt-get install nodejs npm" >&2
        exit 1
    fi
done
mkdir -p "$to"
# shellcheck disable=SC2086 # the list is meant to be split
npm install --silent --no-audit --no-fund --no-save --ignore-scripts --prefix "$to" $wanted
echo "$wanted" >"$to/versions"
