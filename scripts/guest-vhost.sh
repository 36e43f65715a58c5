#!/bin/sh
# A Linux guest in QEMU, in software, whose disks are volumes over vhost-user: an in-place volume, a
# log volume and a snapshot. What it does is scripts/vhost-guest/init. Meanwhile the daemon is
# killed and started again, a drive fails and comes back, a volume grows. At the end both sides must
# see the same bytes, and a scrub nothing wrong. The kernel comes as a package of Debian into a
# folder that is kept; the guest's programs are this system's. Needs no root.
#
# usage: scripts/guest-vhost.sh PATH-TO-STRIPEWISE [SECONDS [FOLDER-FOR-THE-KERNEL]]
set -eu
usage='usage: scripts/guest-vhost.sh PATH-TO-STRIPEWISE [SECONDS [FOLDER-FOR-THE-KERNEL]]'
stripewise=${1:?$usage}
limit_s=${2:-900}
kept=${3:-${XDG_CACHE_HOME:-$HOME/.cache}/stripewise-guest-kernel}
here=$(cd "$(dirname "$0")" && pwd)
PATH=$PATH:/usr/sbin:/sbin

fail() {
    echo "error: $1" >&2
    [ -z "${2:-}" ] || echo "hint: $2" >&2
    exit 1
}
programs="mke2fs e2fsck resize2fs blkdiscard fstrim fio"
for program in qemu-system-x86_64 cpio apt-get dpkg-deb $programs; do
    command -v "$program" >/dev/null \
        || fail "there is no $program, which the guest needs" "scripts/need.sh guest"
done
[ "$(uname -m)" = x86_64 ] || fail "the guest's programs are this system's, and its kernel is one for x86-64"
[ -x "$stripewise" ] || fail "$stripewise is no program" "make build"

work=$(mktemp -d /dev/shm/guest-vhost.XXXXXX)
server='' machine=''
clean_up() {
    for process in $machine $server; do
        kill -9 "$process" 2>/dev/null || true
        { wait "$process" || true; } 2>/dev/null
    done
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 1' INT TERM
end_s=$(($(date +%s) + limit_s))

# --- the guest: a kernel with its modules for the disks, busybox, and programs of this system -----
if [ ! -e "$kept/ready" ]; then
    echo "fetching the guest's kernel into $kept (once, 30 MB)"
    mkdir -p "$kept"
    kernel=$(apt-cache depends linux-image-cloud-amd64 | awk '/Depends: linux-image/ { print $2; exit }')
    [ -n "$kernel" ] || fail "apt knows no linux-image-cloud-amd64" "on Debian: apt-get update"
    rm -rf "$kept"/*.deb "$kept/system"
    (cd "$kept" && timeout 600 apt-get -qq download "$kernel" busybox-static)
    for package in "$kept"/*.deb; do dpkg-deb -x "$package" "$kept/system"; done
    rm -f "$kept"/*.deb
    touch "$kept/ready"
fi
root=$work/root
mkdir -p "$root/bin" "$root/modules" "$root/dev" "$root/proc" "$root/sys" "$root/tmp" "$root/etc"
cp "$kept/system/bin/busybox" "$root/bin/busybox"
install -m 755 "$here/vhost-guest/init" "$root/init"
order=10
for module in virtio_ring virtio virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci virtio_blk; do
    find "$kept/system/lib/modules" -name "$module.ko" -exec cp {} "$root/modules/$order-$module.ko" \;
    order=$((order + 1))
done
for program in $programs; do
    file=$(command -v "$program")
    cp -L "$file" "$root/bin/$program"
    ldd "$file" | grep -o '/[^ ]*' | while read -r library; do
        [ -e "$root$library" ] || cp -L --parents "$library" "$root"
    done
done
ln -s mke2fs "$root/bin/mkfs.ext4"
: >"$root/etc/mke2fs.conf"
[ ! -e /etc/mke2fs.conf ] || cp /etc/mke2fs.conf "$root/etc"
(cd "$root" && find . | cpio --quiet -o -H newc) >"$work/initrd"
rm -rf "$root"

# --- the daemon and the machine -------------------------------------------------------------------
export STRIPEWISE_HOME="$work/home"
mkdir "$STRIPEWISE_HOME"
sw() { "$stripewise" --quiet "$@"; }
# Slow, so that requests are in flight whenever the daemon is killed.
sw drive make "$work/d" --count 4 --size 320MiB --pace 1000iops >/dev/null
sw pool create tank "$work"/d/drive*.img >/dev/null
sw volume create tank/vm --layout raid5 --size 192MiB >/dev/null
sw volume create tank/log --layout raid5 --log --size 128MiB >/dev/null
head -c 8388608 /dev/urandom >"$work/data"
sw volume write tank/log --offset 0 <"$work/data" >/dev/null
sw snapshot create tank/log@before >/dev/null

give_up() {
    echo "error: $1" >&2
    echo "--- the guest:" >&2
    tail -n 30 "$work/console" >&2 || true
    echo "--- the daemon and QEMU:" >&2
    tail -n 30 "$work/said" "$work/qemu" >&2 || true
    exit 1
}
serve() {
    : >"$work/ready"
    "$stripewise" serve tank --vhost-user "$work/disks" >"$work/ready" 2>>"$work/said" &
    server=$!
    until grep -q ready "$work/ready"; do
        kill -0 "$server" 2>/dev/null || give_up "the daemon did not start"
        sleep 0.1
    done
}
until_true() { # what is waited for, command
    for_what=$1
    shift
    until "$@"; do
        kill -0 "$machine" 2>/dev/null || "$@" || give_up "the guest ended before $for_what"
        [ "$(date +%s)" -lt $end_s ] || give_up "no $for_what within $limit_s s"
        ! grep -q 'GUEST failed' "$work/console" || give_up "the guest saw a failure"
        sleep 0.2
    done
}
said() { grep -q "GUEST $1" "$work/console"; }
until_said() { until_true "'$1'" said "$1"; }
last() { tr -d '\r' <"$work/console" | awk -v kind="$1" '$1 == "GUEST" && $2 == kind { n = $3 } END { print n + 0 }'; }
more() { # of a kind, than
    [ "$(last "$1")" -gt "$2" ]
}
until_more() { # both loads have gone on, and fio is in the middle of a pass
    passes=$(last pass)
    until_true 'another pass of fio' more pass "$passes"
    rounds=$(last round)
    until_true 'another round' more round "$rounds"
}
sockets() { [ -S "$work/disks/tank/vm" ] && [ -S "$work/disks/tank/log" ] && [ -S "$work/disks/tank/log@before" ]; }

serve
until sockets; do sleep 0.1; done
: >"$work/console"
disks=
for disk in vm log log@before; do
    disks="$disks -chardev socket,id=$disk,path=$work/disks/tank/$disk,reconnect=1 -device vhost-user-blk-pci,chardev=$disk,num-queues=2"
done
disks=$(echo "$disks" | sed 's/\(id\|chardev\)=log@before/\1=snapshot/g')
# shellcheck disable=SC2086 # the list is meant to be split
qemu-system-x86_64 -accel tcg -smp 2 -m 768 -display none -no-reboot -nodefaults -serial "file:$work/console" \
    -object memory-backend-memfd,id=mem,size=768M,share=on -machine q35,memory-backend=mem $disks \
    -kernel "$(find "$kept/system/boot" -name 'vmlinuz-*' | head -1)" -initrd "$work/initrd" \
    -append 'console=ttyS0 quiet panic=-1' </dev/null >"$work/qemu" 2>&1 &
machine=$!

until_said 'file system made'
tr -d '\r' <"$work/console" | sed -n 's/^GUEST \(disk .*\)/  \1/p'
expect() { # a disk's line must have
    tr -d '\r' <"$work/console" | grep -q "GUEST disk $1: $2" || give_up "disk $1 should be: $2"
}
expect tank/vm '201326592 bytes, blocks of 512, read-only 0, discards [1-9][0-9]*, write back, queues 2'
expect tank/log '134217728 bytes, blocks of 4096, read-only 0, discards [1-9][0-9]*, write back, queues 2'
expect tank/log@before '134217728 bytes, blocks of 4096, read-only 1'

for _ in 1 2 3; do
    until_more
    kill -9 "$server"
    { wait "$server" || true; } 2>/dev/null
    serve
done
until_more
echo "  the daemon was killed three times; the guest goes on"
sw pool offline tank "$work/d/drive1.img" >/dev/null
until_more
sw pool online tank "$work/d/drive1.img" >/dev/null
sw pool wait tank rebuild >/dev/null
until_more
echo "  a drive failed and came back; the guest goes on"
sw volume resize tank/vm 256MiB >/dev/null
until_said 'done'
said 'size 268435456' || give_up "the guest should see a disk of 256 MiB"
{ wait "$machine" || true; } 2>/dev/null
machine=

# --- what the guest saw is what the volumes hold --------------------------------------------------
for disk in vm:268435456 log:134217728 log@before:134217728; do
    name=tank/${disk%:*}
    there=$(tr -d '\r' <"$work/console" | awk -v name="$name" '$1 == "GUEST" && $2 == "contents" && $3 == name { print $4 }')
    here=$(sw volume read "$name" --offset 0 --length "${disk#*:}" | sha256sum | cut -d' ' -f1)
    [ "$there" = "$here" ] || give_up "$name: the guest read $there, the volume holds $here"
done
sw pool scrub tank --wait >"$work/scrub"
kill "$server"
wait "$server" || give_up "the daemon did not end well"
server=
[ "$(grep -c 'no errors found' "$work/scrub")" = 2 ] || give_up "the scrub: $(cat "$work/scrub")"
sw pool status tank --json >"$work/status" || give_up "the pool is not well: $(cat "$work/status")"
[ "$(grep -c '"checksum_errors": 0' "$work/status")" = 4 ] || give_up "checksum errors: $(cat "$work/status")"
echo "guest: $(last round) rounds on ext4 and $(last pass) passes of fio --verify by a Linux guest over vhost-user; nothing was lost"
