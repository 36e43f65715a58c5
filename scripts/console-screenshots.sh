#!/bin/sh
# Takes the screenshots of docs/console.md in Chromium, from a demonstration pool with a failed drive.
#
# usage: scripts/console-screenshots.sh PROGRAM
set -eu
program=$(realpath "${1:?usage: scripts/console-screenshots.sh PROGRAM}")
cd "$(dirname "$0")/.."
scripts/web-tools.sh
tools=$(realpath "${CARGO_TARGET_DIR:-target}/web-tools")
work=$(mktemp -d /var/tmp/nas.XXXX)
daemon=
trap '[ -z "$daemon" ] || kill "$daemon"; wait; rm -rf "$work"' EXIT
export STRIPEWISE_HOME="$work/home" NO_COLOR=1
drives=$work/drives
"$program" --quiet drive make "$drives" --count 10 --size 2TB --overcommit >/dev/null
"$program" --quiet pool create tank "$drives"/drive[0-4].img
"$program" --quiet volume create tank/media --layout raid6 --size 4TB
"$program" --quiet volume create tank/vm --layout raid10 --size 500GB
token=demonstration-0123456789
mkdir -p "$work/home"
(umask 077; echo "token admin admin $token" >"$work/tokens")
port=18437
"$program" --quiet serve --http $port --http-token-file "$work/tokens" >"$work/out" 2>&1 &
daemon=$!
until grep -q '^ready' "$work/out" 2>/dev/null; do
    kill -0 "$daemon"
    sleep 0.1
done
CONSOLE_TEST="{\"url\": \"http://127.0.0.1:$port\", \"token\": \"$token\", \"tools\": \"$tools\", \"chromium\": \"$(command -v chromium)\",
    \"program\": \"$program\", \"folder\": \"$work\", \"drives\": \"$drives\", \"to\": \"$PWD/docs/images\"}" \
    node tests/web/screenshots.mjs
ls -l docs/images
