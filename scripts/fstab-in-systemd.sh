#!/bin/sh
# A file system on a volume by /etc/fstab, under a real systemd in namespaces: mounted and unmounted by mount(8) and
# umount(8), there after a reboot, unmounted before the daemon stops, back after the daemon is killed; and the upgrade
# of the program while an NBD client writes. Where that is not possible it says so and ends well.
#
# usage: scripts/fstab-in-systemd.sh PATH-TO-STRIPEWISE
set -eu
binary=${1:?usage: scripts/fstab-in-systemd.sh PATH-TO-STRIPEWISE}
# shellcheck source=scripts/systemd-in-namespaces.sh
. "$(dirname "$0")/systemd-in-namespaces.sh"
for program in mkfs.ext4 qemu-io; do command -v $program >/dev/null || pass_over "$program is not installed"; done
prepare "$binary"
drop_in stripewise-mount.conf
sed 's#@BINDIR@#/usr/local/bin#' "$dist/mount.stripewise" >"$root/sbin/mount.stripewise"
chmod 755 "$root/sbin/mount.stripewise"
mkdir -p "$root/srv/a" "$root/srv/gone" "$root/var/log/journal"
ln -s /etc/systemd/system/stripewise.service "$units/multi-user.target.wants/stripewise.service"
cat >"$root/etc/fstab" <<'FSTAB'
tank/a /srv/a stripewise fs=ext4,noatime,nofail,_netdev,x-systemd.requires=stripewise.service 0 0
gone/a /srv/gone stripewise fs=ext4,wait=2,nofail,_netdev,x-systemd.requires=stripewise.service 0 0
FSTAB
boot

is_mounted() { within findmnt --noheadings --types ext4 /srv/a >/dev/null; }
told() { within journalctl -u stripewise --no-pager -o cat | grep -q "$1"; }
within systemctl is-active --quiet stripewise || fail "it is not started at boot"
# shellcheck disable=SC2086
within stripewise --quiet pool create tank $loops
within stripewise --quiet volume create tank/a --layout raid5 --size 100MiB
within stripewise --quiet volume create tank/vm --layout raid5 --size 100MiB

within mount /srv/a || fail "mount(8) does not mount it"
is_mounted || fail "mount(8) succeeds, and nothing is mounted"
within findmnt --noheadings --output OPTIONS /srv/a | grep -q noatime || fail "an option of the file system is lost"
within mount -t stripewise -o fs=ext4,noatime tank/a /srv/a || fail "a mount that is there already is refused"
within umount /srv/a || fail "umount(8) does not unmount it"
within mount /srv/a || fail "it cannot be mounted again at once"
within systemctl stop srv-a.mount || fail "systemd does not unmount it"
! told 'by another process' || fail "an unmount by the system is reported as one by another process"
within systemctl start srv-a.mount || fail "systemd does not mount it"
within sh -c 'head -c 20000000 /dev/urandom >/srv/a/in && sha256sum /srv/a/in >/sum'
holds() { is_mounted && within sha256sum --quiet -c /sum || fail "$1: the file is not there as it was"; }

shut_down
boot
holds "after a reboot"
within journalctl --no-pager -o cat | awk '
    /^Unmounted srv-a.mount/ { unmounted = NR }
    /^Stopping stripewise.service/ { stopping = NR }
    END { exit !(unmounted && unmounted < stopping) }' ||
    fail "the daemon stops before the file system is unmounted"
within systemctl is-failed --quiet srv-gone.mount || fail "a pool that is not there is mounted"
within systemctl is-active --quiet multi-user.target || fail "nofail: the boot waits for a pool that is not there"
after() { within systemctl show "$1" -p ActiveEnterTimestampMonotonic --value; }
[ "$(after stripewise)" -le "$(after srv-a.mount)" ] || fail "it is mounted before the pool is served"

within sh -c 'kill -9 $(pidof stripewise)'
tries=0
until is_mounted && within systemctl is-active --quiet stripewise; do
    tries=$((tries + 1))
    [ $tries -lt 100 ] || fail "killed: the mount does not come back"
    sleep 0.2
done
holds "killed, and started again by systemd"

# The upgrade: a client of NBD writes the whole time, and waits for the server while it is away.
cat >"$root/client.sh" <<'CLIENT'
#!/bin/sh
number=0
{
    while [ ! -e /upgraded ] || [ $number -lt 40 ]; do
        number=$((number + 1))
        echo "write -q -P $((number % 250 + 1)) $((number * 64))k 64k"
        sleep 0.05
    done
    echo flush
    echo $number >/written
} | qemu-io --image-opts \
    driver=nbd,server.type=unix,server.path=/run/stripewise/nbd.sock,export=tank/vm,reconnect-delay=60 >/client.out 2>&1
CLIENT
chmod +x "$root/client.sh"
rm -f "$root/upgraded"
within /client.sh &
client=$!
sleep 1
install "$binary" "$root/usr/local/bin/stripewise.new"
mv "$root/usr/local/bin/stripewise.new" "$root/usr/local/bin/stripewise"
begun=$(date +%s%N)
within systemctl restart stripewise || fail "it does not restart"
milliseconds=$((($(date +%s%N) - begun) / 1000000))
touch "$root/upgraded"
wait $client || fail "the NBD client does not get over the restart: $(cat "$root/client.out")"
! grep -qi 'error\|failed' "$root/client.out" || fail "the NBD client sees errors: $(cat "$root/client.out")"
within sh -c '
    number=1
    while [ $number -le $(cat /written) ]; do
        echo "read -q -P $((number % 250 + 1)) $((number * 64))k 64k"
        number=$((number + 1))
    done | qemu-io -f raw "nbd+unix:///tank/vm?socket=/run/stripewise/nbd.sock" 2>&1' |
    grep -i 'fail' && fail "the NBD client has lost what it wrote"
[ $milliseconds -le 5000 ] || fail "the restart takes $milliseconds ms, 5000 at most"
tries=0
until is_mounted; do
    tries=$((tries + 1))
    [ $tries -lt 100 ] || fail "the mount does not come back after the restart"
    sleep 0.1
done
holds "restarted"
shut_down
echo "fstab-in-systemd: mounted and unmounted by the system, there after a reboot, back after a kill;" \
    "restarted in $milliseconds ms under an NBD client that writes ($(cat "$root/written") requests)"
