#!/bin/sh
# FUSE and a loop device with direct I/O over a raid5 volume on four files in memory, against btrfs raid5 on four loop devices on files
# in the same memory: fio on the raw device (ours) and on a file (btrfs has no raw device), alternating, medians of the ratios.
# Needs root, fio, loop devices, btrfs; about half a minute per pair.
#
# usage: scripts/bench-fuse.sh PATH-TO-STRIPEWISE [PAIRS [SECONDS]]
set -eu
stripewise=${1:?usage: scripts/bench-fuse.sh PATH-TO-STRIPEWISE [PAIRS [SECONDS]]}
pairs=${2:-5}
seconds=${3:-3}
work=$(mktemp -d /dev/shm/bench-fuse.XXXXXX)
export STRIPEWISE_HOME="$work/home"
loops=
ours=
server=

clean_up() {
    umount "$work/btrfs" 2>/dev/null || true
    for device in $ours $loops; do losetup --detach "$device" 2>/dev/null || true; done
    if [ -n "$server" ]; then kill "$server" 2>/dev/null && wait "$server" || true; fi
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 1' INT TERM

mkdir "$work/m" "$work/btrfs"
"$stripewise" --quiet drive make "$work/d" --count 4 --size 768MiB >/dev/null
"$stripewise" --quiet pool create bench "$work"/d/drive*.img >/dev/null
"$stripewise" --quiet volume create bench/v --layout raid5 --size 1500MiB >/dev/null
"$stripewise" --quiet mount bench "$work/m" >"$work/ready" 2>"$work/said" &
server=$!
until grep -q ready "$work/ready"; do kill -0 "$server" && sleep 0.1; done
ours=$(losetup --find --show --direct-io=on "$work/m/v")
for drive in 0 1 2 3; do
    truncate -s 768M "$work/b$drive"
    loops="$loops $(losetup --find --show --direct-io=on "$work/b$drive")"
done
# shellcheck disable=SC2086 # a list
mkfs.btrfs -q -f -d raid5 -m raid1 $loops >/dev/null 2>&1
mount -o noatime "${loops##* }" "$work/btrfs"

load() { # file or device, kind, block, depth: MB/s
    fio --name=x --filename="$1" --rw="$2" --bs="$3" --iodepth="$4" --size=600M --ioengine=io_uring --direct=1 --runtime="$seconds" \
        --time_based --norandommap --randrepeat=0 --output-format=terse --terse-version=3 |
        awk -F';' '{ print ($7 + $48) / 1000 }'
}
load "$ours" write 1M 16 >/dev/null
load "$work/btrfs/f" write 1M 16 >/dev/null

for what in "randwrite 4k 32" "write 1M 16" "randread 4k 32"; do
    # shellcheck disable=SC2086 # three words
    for _ in $(seq "$pairs"); do
        echo "$(load "$ours" $what) $(load "$work/btrfs/f" $what)"
    done | awk '{ print $1 / $2, $1, $2 }' | sort -n |
        awk -v what="$what" '{ line[NR] = $0 } END {
            split(line[int((NR + 1) / 2)], m, " "); split(line[1], l, " "); split(line[NR], h, " ")
            printf "%-16s ours %.0f MB/s, btrfs %.0f MB/s in the median pair: ratio %.2f (%.2f to %.2f, %d pairs)\n", what, m[2], m[3], m[1], l[1], h[1], NR }'
done
