#!/bin/sh
# FUSE and a loop device with direct I/O over raid5 volumes on four files in memory, against btrfs raid5 on four loop devices with direct
# I/O on files in the same memory: fio on the raw device (ours) and on a file (btrfs has no raw device), with direct I/O, in turns.
# btrfs keeps checksums of data as well, so a volume with checksums (the default) is compared with a file with them, and a volume without with
# a file without (chattr +C, which also writes in place). All 600 MiB that are loaded are written before. Prints medians of the ratios.
# What it needs and is not there (root, FUSE, loop devices, btrfs, fio) is said, and it ends well.
#
# usage: scripts/bench-fuse.sh PATH-TO-STRIPEWISE [PAIRS [SECONDS]]
# 5 pairs of 2 s (the default) take two and a half to four minutes.
set -eu
stripewise=${1:?usage: scripts/bench-fuse.sh PATH-TO-STRIPEWISE [PAIRS [SECONDS]]}
pairs=${2:-5}
seconds=${3:-2}
size=600M
PATH=$PATH:/usr/sbin:/sbin

pass_over() {
    echo "fuse: passed over: $1"
    exit 0
}
[ "$(id -u)" = 0 ] || pass_over "mounting and loop devices need root"
[ -c /dev/fuse ] || pass_over "there is no /dev/fuse"
for program in fio losetup mkfs.btrfs chattr; do
    command -v "$program" >/dev/null || pass_over "there is no $program"
done
losetup --find >/dev/null 2>&1 || pass_over "there are no loop devices"
grep -qw btrfs /proc/filesystems || modprobe btrfs 2>/dev/null || pass_over "the kernel has no btrfs"

work=$(mktemp -d /dev/shm/bench-fuse.XXXXXX)
export STRIPEWISE_HOME="$work/home"
loops=
server=

clean_up() {
    umount "$work/btrfs" 2>/dev/null || true
    for device in $loops; do losetup --detach "$device" 2>/dev/null || true; done
    if [ -n "$server" ]; then kill "$server" 2>/dev/null && wait "$server" || true; fi
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 1' INT TERM

attach() { # file; its loop device becomes $device
    device=$(losetup --find --show --direct-io=on "$1")
    loops="$device $loops"
    [ "$(losetup --noheadings --output DIO "$device" | tr -d ' ')" = 1 ] || pass_over "no direct I/O to $1"
}

mkdir "$work/m" "$work/btrfs"
"$stripewise" --quiet drive make "$work/d" --count 4 --size 1GiB >/dev/null
"$stripewise" --quiet pool create bench "$work"/d/drive*.img >/dev/null
"$stripewise" --quiet volume create bench/sums --layout raid5 --size 700MiB >/dev/null
"$stripewise" --quiet volume create bench/plain --layout raid5 --size 700MiB --checksums off >/dev/null
"$stripewise" --quiet mount bench "$work/m" >"$work/ready" 2>"$work/said" &
server=$!
until grep -q ready "$work/ready"; do
    kill -0 "$server" 2>/dev/null || { cat "$work/said"; exit 1; }
    sleep 0.1
done
drives=
for drive in 0 1 2 3; do
    truncate -s 1G "$work/b$drive"
    attach "$work/b$drive"
    drives="$drives $device"
done
# shellcheck disable=SC2086 # a list
mkfs.btrfs -q -f -d raid5 -m raid1 $drives >/dev/null 2>&1
mount -o noatime "$device" "$work/btrfs"
touch "$work/btrfs/sums" "$work/btrfs/plain"
chattr +C "$work/btrfs/plain"
attach "$work/m/sums"
ours_sums=$device
attach "$work/m/plain"
ours_plain=$device

load() { # file or device, kind, block, depth, options: MB/s
    place=$1 kind=$2 block=$3 depth=$4
    shift 4
    fio --name=x --filename="$place" --rw="$kind" --bs="$block" --iodepth="$depth" --size=$size --ioengine=io_uring --direct=1 \
        --norandommap --randrepeat=0 --output-format=terse --terse-version=3 "$@" | awk -F';' '{ print ($7 + $48) / 1000 }'
}
for place in "$ours_sums" "$ours_plain" "$work/btrfs/sums" "$work/btrfs/plain"; do
    load "$place" write 1M 16 --end_fsync=1 >/dev/null
done

for what in "randwrite 4k 32" "write 1M 16" "randread 4k 32"; do
    for _ in $(seq "$pairs"); do
        for kind in sums plain; do
            if [ $kind = sums ]; then ours=$ours_sums; else ours=$ours_plain; fi
            # shellcheck disable=SC2086 # three words
            echo "$kind $(load "$ours" $what --time_based --runtime="$seconds") $(load "$work/btrfs/$kind" $what --time_based --runtime="$seconds")"
        done
    done >"$work/figures"
    for kind in sums plain; do
        awk -v kind=$kind '$1 == kind { print $2 / $3, $2, $3 }' "$work/figures" | sort -n |
            awk -v what="$what" -v kind=$kind '{ line[NR] = $0 } END {
                split(line[int((NR + 1) / 2)], m, " "); split(line[1], l, " "); split(line[NR], h, " ")
                name = kind == "sums" ? "checksums" : "no checksums"
                printf "fuse: %-15s %-12s ours %.0f MB/s, btrfs %.0f MB/s in the median pair: ratio %.2f (%.2f..%.2f, %d pairs)\n", what, name, m[2], m[3], m[1], l[1], h[1], NR }'
    done
done
