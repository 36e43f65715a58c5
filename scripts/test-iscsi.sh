#!/bin/sh
# Volumes over iSCSI, by tgt on loopback with a control socket of its own: the configuration of
# scripts/iscsi-targets.py, judged by libiscsi's programs and test suite, and by the bytes that the
# volumes hold. A tgt of the system is left alone. Needs FUSE.
#
# usage: scripts/test-iscsi.sh PATH-TO-STRIPEWISE
set -eu
stripewise=${1:?usage: scripts/test-iscsi.sh PATH-TO-STRIPEWISE}
here=$(cd "$(dirname "$0")" && pwd)
PATH=$PATH:/usr/sbin:/sbin
fail() {
    echo "error: $1" >&2
    [ -z "${2:-}" ] || echo "hint: $2" >&2
    exit 1
}
for program in tgtd tgtadm tgt-admin iscsi-ls iscsi-inq iscsi-test-cu qemu-img qemu-io; do
    command -v $program >/dev/null || fail "there is no $program" "scripts/need.sh iscsi"
done
[ -e /dev/fuse ] || fail "this system has no /dev/fuse, and tgt serves mounted files"

work=$(mktemp -d /tmp/test-iscsi.XXXXXX)
daemon='' target=''
clean_up() {
    # tgtd takes no other signal.
    [ -z "$target" ] || { kill -9 "$target" && wait "$target" || true; } 2>/dev/null
    [ -z "$daemon" ] || { kill "$daemon" && wait "$daemon" || true; } 2>/dev/null
    rm -rf --one-file-system "$work"
}
trap clean_up EXIT
trap 'exit 1' INT TERM
until_true() { # what is waited for, command
    for_what=$1 left=600
    shift
    until "$@" >/dev/null 2>&1; do
        left=$((left - 1))
        [ $left -gt 0 ] || { cat "$work/said" "$work/target" >&2; fail "no $for_what within a minute"; }
        sleep 0.1
    done
}

# --- volumes as files, and the target -------------------------------------------------------------
export STRIPEWISE_HOME="$work/home"
export TGT_IPC_SOCKET="$work/control"
mkdir "$STRIPEWISE_HOME" "$work/files"
sw() { "$stripewise" --quiet "$@"; }
sw drive make "$work/d" --count 4 --size 160MiB >/dev/null
sw pool create tank "$work"/d/drive*.img >/dev/null
sw volume create tank/win --layout raid5 --size 64MiB >/dev/null
sw volume create tank/log --layout raid5 --log --size 64MiB >/dev/null
head -c 1048576 /dev/urandom >"$work/data"
sw volume write tank/log --offset 0 <"$work/data" >/dev/null
sw snapshot create tank/log@before >/dev/null
: >"$work/target"
"$stripewise" serve tank --fuse "$work/files" >"$work/ready" 2>"$work/said" &
daemon=$!
until_true 'daemon' grep -q ready "$work/ready"
until_true 'mounted files' test -f "$work/files/tank/win"

port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
at=127.0.0.1:$port
tgtd -f -C 1 --iscsi "portal=$at" >"$work/target" 2>&1 &
target=$!
until_true 'target' tgtadm -C 1 --mode system --op show
"$here/iscsi-targets.py" --program "$stripewise" --initiator 127.0.0.1 "$work/files/tank" tank win log log@before >"$work/targets.conf"
timeout 60 tgt-admin -C 1 -c "$work/targets.conf" -e >"$work/configured" 2>&1 \
    || { cat "$work/configured"; fail "tgt-admin refused the configuration"; }

# --- what initiators see --------------------------------------------------------------------------
prefix=iqn.2026-01.local.stripewise:tank
timeout 20 iscsi-ls -s "iscsi://$at" >"$work/list"
for name in win log log:before; do
    grep -q "Target:$prefix.$name " "$work/list" \
        || { cat "$work/list" "$work/configured"; fail "no target for $name"; }
done
[ "$(tgtadm -C 1 --mode target --op show | grep -c 'Readonly: Yes')" = 1 ] \
    || fail "the snapshot alone should be read-only"
timeout 20 iscsi-inq "iscsi://$at/$prefix.win/1" | grep -q 'Vendor:STRPWISE' || fail "another vendor"
serial() { timeout 20 iscsi-inq -e 1 -c 128 "iscsi://$at/$prefix.$1/1" | sed -n 's/^Unit Serial Number:\[*\([^]]*\)\]*/\1/p'; }
id=$(sw volume list tank --json | python3 -c 'import json, sys
print(*[v["id"].replace("-", "")[:16] for v in json.load(sys.stdin)["volumes"] if v["name"] == "win"])')
[ "$(serial win | tr -d ' ')" = "$id" ] \
    || fail "the serial number is $(serial win), the volume's id begins with $id"
timeout 20 iscsi-readcapacity16 "iscsi://$at/$prefix.log/1" | grep -q 'LENGTH IN BYTES:4096' \
    || fail "a log volume has other blocks"

# Bytes written by an initiator are the volume's, and the other way round; a snapshot takes none.
url() { echo "iscsi://$at/$prefix.$1/1"; }
timeout 60 qemu-io -f raw -c 'write -P 7 1M 1M' -c flush -c 'read -P 7 1M 1M' "$(url win)" >"$work/io" \
    || { cat "$work/io"; fail "qemu-io"; }
python3 -c 'import sys; sys.stdout.buffer.write(b"\7" * 1048576)' >"$work/sevens"
sw volume read tank/win --offset 1048576 --length 1048576 | cmp - "$work/sevens" \
    || fail "the volume has other bytes"
timeout 60 qemu-io -d unmap -f raw -c 'discard 1M 512k' "$(url win)" >"$work/io" \
    || { cat "$work/io"; fail "qemu-io: discard"; }
sw volume read tank/win --offset 1048576 --length 524288 | cmp -n 524288 - /dev/zero \
    || fail "the discard left its bytes"
timeout 60 qemu-img dd -f raw -O raw bs=1M count=1 "if=$(url log:before)" "of=$work/copy"
cmp "$work/copy" "$work/data" || fail "the snapshot has other bytes"
! timeout 60 qemu-io -f raw -c 'write 0 4096' "$(url log:before)" >"$work/io" 2>&1 \
    || fail "a snapshot took a write"

# --- libiscsi's test suite ------------------------------------------------------------------------
# The parts that are about data. Others fail by tgt itself (OrWrite, Reserve6, Unmap.ZeroBlocks), or
# take minutes (WriteSame).
for suite in TestUnitReady ReadCapacity10 ReadCapacity16 Read10 Read12 Read16 Write10 Write12 Write16 Verify10; do
    timeout 120 iscsi-test-cu -d -n -f -t "SCSI.$suite" "$(url win)" >"$work/suite" 2>&1 \
        || { cat "$work/suite"; fail "$suite failed"; }
    # Suites and tests: total, ran, passed, failed.
    awk '$1 == "tests" { ran = $3; failed = $5 } END { exit !(ran > 0 && failed == 0) }' "$work/suite" \
        || { cat "$work/suite"; fail "$suite"; }
done
sw pool scrub tank --wait >"$work/scrub"
[ "$(grep -c 'no errors found' "$work/scrub")" = 2 ] \
    || { cat "$work/scrub"; fail "the scrub found something"; }
echo "iscsi: tgt on mounted volumes, judged by libiscsi's suite and QEMU"
