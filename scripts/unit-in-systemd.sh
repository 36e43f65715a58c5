#!/bin/sh
# The systemd unit under a real systemd: boots one in namespaces of its own, over a throw-away copy of this machine's
# file system, and has the unit serve a pool on loop devices: started, killed, restarted, with FUSE, stopped. Says so
# and ends well where that is not possible (no root, no systemd, no overlay, no free loop devices).
#
# usage: scripts/unit-in-systemd.sh PATH-TO-STRIPEWISE
set -eu
binary=${1:?usage: scripts/unit-in-systemd.sh PATH-TO-STRIPEWISE}
dist=$(dirname "$0")/../dist
systemd=/lib/systemd/systemd
pass_over() { echo "unit-in-systemd: passed over, $1"; exit 0; }
[ "$(id -u)" = 0 ] || pass_over "it needs root"
[ -x "$systemd" ] || pass_over "systemd is not installed"
command -v losetup nsenter unshare systemd-analyze >/dev/null || pass_over "util-linux or systemd's tools are not installed"

scratch=$(mktemp -d)
init= loops=
clean() {
    [ -z "$init" ] || kill -9 "$init" 2>/dev/null || true
    sleep 1
    for device in $loops; do losetup -d "$device" || true; done
    umount -R -l "$scratch/root" 2>/dev/null || true
    umount -l "$scratch" 2>/dev/null || true
    rmdir "$scratch" 2>/dev/null || true
}
trap clean EXIT
mount -t tmpfs -o size=2G tmpfs "$scratch"
mkdir "$scratch/upper" "$scratch/work" "$scratch/root" "$scratch/drives"
layers=lowerdir=/,upperdir=$scratch/upper,workdir=$scratch/work
mount -t overlay overlay -o "$layers" "$scratch/root" 2>/dev/null || pass_over "there is no overlay file system"
root=$scratch/root
for number in 0 1 2 3; do
    truncate -s 256M "$scratch/drives/$number"
    device=$(losetup -f --show "$scratch/drives/$number") || pass_over "there are no free loop devices"
    loops="$loops $device"
done

units=$root/etc/systemd/system
install "$binary" "$root/usr/local/bin/stripewise"
sed 's#@BINDIR@#/usr/local/bin#' "$dist/stripewise.service" >"$units/stripewise.service"
rm -rf "$units/stripewise.service.d" "$units/multi-user.target.wants/stripewise.service"
cat >"$root/boot.sh" <<'BOOT'
#!/bin/sh
mount -t proc proc /proc && mount -t tmpfs tmpfs /run && mount -t tmpfs tmpfs /tmp
container=namespaces exec /lib/systemd/systemd --system --unit=multi-user.target </dev/null >/dev/null 2>&1
BOOT
chmod +x "$root/boot.sh"
mount --bind /dev "$root/dev"
mount --bind /sys "$root/sys"
mount --rbind /sys/fs/cgroup "$root/sys/fs/cgroup"
unshare --pid --fork --kill-child --mount --uts --ipc chroot "$root" /boot.sh &
wrapper=$!
within() { timeout 60 nsenter -t "$init" -p -m -u -i -r -w env STRIPEWISE_HOME=/var/lib/stripewise "$@"; }
is_up() {
    init=$(cat "/proc/$wrapper/task/$wrapper/children" 2>/dev/null | tr -d ' ')
    [ -n "$init" ] && within systemctl is-system-running 2>/dev/null | grep -qE 'running|degraded'
}
tries=0
until is_up; do
    tries=$((tries + 1))
    [ $tries -lt 200 ] || pass_over "systemd does not start in namespaces here"
    kill -0 $wrapper 2>/dev/null || pass_over "namespaces cannot be made here"
    sleep 0.3
done

fail() { echo "unit-in-systemd: $1"; within journalctl -u stripewise --no-pager -n 30 || true; exit 1; }
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

mkdir -p "$units/stripewise.service.d"
sed 's#@BINDIR@#/usr/local/bin#' "$dist/stripewise-fuse.conf" >"$units/stripewise.service.d/fuse.conf"
within systemctl daemon-reload
within systemctl restart stripewise || fail "it does not start with FUSE"
within sh -c 'head -c 20000000 /run/stripewise-volumes/tank/a | cmp - /in' || fail "FUSE gives other bytes"
with_fuse=$(exposure)
below_four "$with_fuse" "with FUSE"
within systemctl stop stripewise || fail "it does not stop"
[ "$(within systemctl show stripewise -p Result --value)" = success ] || fail "it did not end in order"
echo "unit-in-systemd: started, killed, restarted, with FUSE, stopped; exposure $plain, with FUSE $with_fuse"
