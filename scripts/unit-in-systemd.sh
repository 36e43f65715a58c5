#!/bin/sh
# The systemd unit under a real systemd: boots one in namespaces of its own, over a throw-away copy of this machine's
# file system, and has the unit serve a pool on loop devices: started, killed, restarted, with FUSE, stopped. Says so
# and ends well where that is not possible (no root, no systemd, no overlay, no free loop devices).
#
# usage: scripts/unit-in-systemd.sh PATH-TO-STRIPEWISE
set -eu
binary=${1:?usage: scripts/unit-in-systemd.sh PATH-TO-STRIPEWISE}
# shellcheck source=scripts/systemd-in-namespaces.sh
. "$(dirname "$0")/systemd-in-namespaces.sh"
prepare "$binary"
boot

exposure() { within systemd-analyze security stripewise --no-pager 2>/dev/null | sed -n 's/.*service: \([0-9.]*\).*/\1/p'; }
below_four() { awk "BEGIN { exit !($1 < 4) }" || fail "$2: exposure $1, 4 are too many"; }
holds() { within sh -c 'stripewise volume read tank/a --length 20000000 | cmp - /in' || fail "$1: other bytes than were written"; }

within systemctl start stripewise || fail "it does not start"
# shellcheck disable=SC2086
within stripewise --quiet pool create tank $loops
within stripewise --quiet volume create tank/a --layout raid5 --size 100MiB
head -c 20000000 /dev/urandom >"$root/in"
within sh -c 'stripewise --quiet volume write tank/a </in'
plain=$(exposure)
below_four "$plain" "the unit"
within sh -c 'kill -9 $(pidof stripewise)'
sleep 1
holds "killed, and started again by systemd"
within systemctl restart stripewise || fail "it does not restart"
holds "restarted"

drop_in stripewise-fuse.conf
within systemctl daemon-reload
within systemctl restart stripewise || fail "it does not start with FUSE"
within sh -c 'head -c 20000000 /run/stripewise-volumes/tank/a | cmp - /in' || fail "FUSE gives other bytes"
with_fuse=$(exposure)
below_four "$with_fuse" "with FUSE"
within systemctl stop stripewise || fail "it does not stop"
[ "$(within systemctl show stripewise -p Result --value)" = success ] || fail "it did not end in order"
echo "unit-in-systemd: started, killed, restarted, with FUSE, stopped; exposure $plain, with FUSE $with_fuse"
