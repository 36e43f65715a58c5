# A real systemd in namespaces of its own, over a throw-away copy of this machine's file system, for the scripts that
# source this file: `prepare` makes the copy with the program and its unit, `boot` starts it, `within COMMAND` runs a
# command there, `shut_down` ends it in order. Where that is not possible (no root, no systemd, no overlay, no free
# loop devices) `pass_over` says so and ends the script well.
#
# shellcheck shell=sh disable=SC2034
name=$(basename "$0" .sh)
dist=$(dirname "$0")/../dist
pass_over() { echo "$name: passed over, $1"; exit 0; }
fail() {
    echo "$name: $1"
    within journalctl --no-pager -n 40 -u stripewise || true
    exit 1
}

clean() {
    [ -z "$init" ] || kill -9 "$init" 2>/dev/null || true
    sleep 1
    for device in $loops; do losetup -d "$device" || true; done
    umount -R -l "$scratch/root" 2>/dev/null || true
    umount -l "$scratch" 2>/dev/null || true
    rmdir "$scratch" 2>/dev/null || true
}

# Makes the root folder and four loop devices.
prepare() { # path to stripewise
    [ "$(id -u)" = 0 ] || pass_over "it needs root"
    [ -x /lib/systemd/systemd ] || pass_over "systemd is not installed"
    command -v losetup nsenter unshare systemd-analyze >/dev/null ||
        pass_over "util-linux or systemd's tools are not installed"
    scratch=$(mktemp -d)
    init= loops=
    trap clean EXIT
    mount -t tmpfs -o size=2G tmpfs "$scratch"
    mkdir "$scratch/upper" "$scratch/work" "$scratch/root" "$scratch/drives"
    layers=lowerdir=/,upperdir=$scratch/upper,workdir=$scratch/work
    root=$scratch/root
    mount -t overlay overlay -o "$layers" "$root" 2>/dev/null || pass_over "there is no overlay file system"
    for number in 0 1 2 3; do
        truncate -s 256M "$scratch/drives/$number"
        device=$(losetup -f --show "$scratch/drives/$number") || pass_over "there are no free loop devices"
        loops="$loops $device"
    done
    units=$root/etc/systemd/system
    install "$1" "$root/usr/local/bin/stripewise"
    sed 's#@BINDIR@#/usr/local/bin#' "$dist/stripewise.service" >"$units/stripewise.service"
    rm -rf "$units/stripewise.service.d" "$units/multi-user.target.wants/stripewise.service"
    # The devices are this machine's, and so are their events: a boot must not wait for them.
    for unit in systemd-udevd systemd-udev-settle systemd-udev-trigger; do
        ln -sf /dev/null "$units/$unit.service"
    done
    cat >"$root/boot.sh" <<'BOOT'
#!/bin/sh
mount -t proc proc /proc && mount -t tmpfs tmpfs /run && mount -t tmpfs tmpfs /tmp
container=namespaces exec /lib/systemd/systemd --system --unit=multi-user.target </dev/null >/dev/null 2>&1
BOOT
    chmod +x "$root/boot.sh"
    mount --bind /dev "$root/dev"
    mount --bind /sys "$root/sys"
    mount --rbind /sys/fs/cgroup "$root/sys/fs/cgroup"
}

# Installs a drop-in of the unit.
drop_in() { # its name in dist
    mkdir -p "$units/stripewise.service.d"
    sed 's#@BINDIR@#/usr/local/bin#' "$dist/$1" >"$units/stripewise.service.d/$1"
}

within() { timeout 120 nsenter -t "$init" -p -m -u -i -r -w env STRIPEWISE_HOME=/var/lib/stripewise "$@"; }

is_up() {
    init=$(cat "/proc/$wrapper/task/$wrapper/children" 2>/dev/null | tr -d ' ')
    [ -n "$init" ] && within systemctl is-system-running 2>/dev/null | grep -qE 'running|degraded'
}

boot() {
    unshare --pid --fork --kill-child --mount --uts --ipc chroot "$root" /boot.sh &
    wrapper=$!
    tries=0
    until is_up; do
        tries=$((tries + 1))
        [ $tries -lt 200 ] || pass_over "systemd does not start in namespaces here"
        kill -0 $wrapper 2>/dev/null || pass_over "namespaces cannot be made here"
        sleep 0.3
    done
}

# Ends all units in order, as a shutdown does.
shut_down() {
    within systemctl exit >/dev/null 2>&1 || true
    tries=0
    while kill -0 $wrapper 2>/dev/null; do
        tries=$((tries + 1))
        [ $tries -lt 400 ] || fail "it does not shut down"
        sleep 0.3
    done
    init=
}
