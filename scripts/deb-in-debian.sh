#!/bin/sh
# The package in a clean Debian (debootstrap, from the mirror that apt uses here): installed, serving a pool on files
# to an NBD client, upgraded to a package of a higher version, and purged, after which no file of it is left.
#
# usage: scripts/deb-in-debian.sh PACKAGE.deb
set -eu
package=${1:?usage: scripts/deb-in-debian.sh PACKAGE.deb}
PATH=$PATH:/usr/sbin:/sbin
pass_over() { echo "deb-in-debian: passed over, $1"; exit 0; }
fail() { echo "deb-in-debian: $1"; exit 1; }
[ "$(id -u)" = 0 ] || pass_over "it needs root"
for program in debootstrap dpkg-deb unshare qemu-io lintian; do
    command -v $program >/dev/null || pass_over "$program is not installed"
done
# shellcheck disable=SC2016 # apt fills these in
mirror=$(apt-get indextargets --format '$(REPO_URI) $(CODENAME)' 'Origin: Debian' 'Created-By: Packages' |
    awk '$2 !~ /-/ { print; exit }')
[ -n "$mirror" ] || pass_over "apt has no Debian mirror here"
lintian --fail-on error "$package" || fail "lintian finds errors"

scratch=$(mktemp -d)
root=$scratch/root
daemon=
clean() {
    [ -z "$daemon" ] || kill -9 "$daemon" 2>/dev/null || true
    rm -rf --one-file-system "$scratch"
}
trap clean EXIT
# shellcheck disable=SC2086 # address and code name
set -- $mirror
debootstrap --variant=minbase "$2" "$root" "$1" >"$scratch/log" 2>&1 || {
    tail -n 5 "$scratch/log"
    pass_over "debootstrap fails"
}
# A root of its own for each command, without processes or mounts that stay behind.
within() { unshare --mount --pid --fork --kill-child chroot "$root" sh -c "mount -t proc proc /proc && $1"; }
files() { (cd "$root" && find . -path ./proc -prune -o -path ./var/lib/dpkg -prune -o -print | sort); }
files >"$scratch/before"
# As in every Debian: no service is started by installing in a chroot.
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
chmod 755 "$root/usr/sbin/policy-rc.d"

install_package() { # the file
    cp "$1" "$root/package.deb"
    within "dpkg -i /package.deb" >"$scratch/log" 2>&1 || { cat "$scratch/log"; fail "$1 is not installed"; }
    rm "$root/package.deb"
}
install_package "$package"
version=$(within 'dpkg-query -W -f "\${Version}" stripewise')
for file in usr/sbin/mount.stripewise usr/share/stripewise/stripewise-mount.conf usr/share/man/man1/stripewise.1.gz \
    usr/share/bash-completion/completions/stripewise usr/lib/systemd/system/stripewise.service; do
    [ -e "$root/$file" ] || fail "/$file is not in the package"
done
! file "$root/usr/bin/stripewise" 2>/dev/null | grep -q 'not stripped' || fail "the program is not stripped"
within 'stripewise --quiet drive make /srv/drives --count 4 --size 128MiB >/dev/null
    stripewise --quiet pool create tank /srv/drives/drive0.img /srv/drives/drive1.img /srv/drives/drive2.img \
        /srv/drives/drive3.img
    stripewise --quiet volume create tank/a --layout raid5 --size 100MiB'
serve() {
    unshare --mount --pid --fork --kill-child chroot "$root" sh -c \
        'mount -t proc proc /proc && exec stripewise serve --nbd unix:/run/nbd.sock' >"$scratch/said" 2>&1 &
    daemon=$!
    tries=0
    until grep -q '^ready' "$scratch/said"; do
        tries=$((tries + 1))
        { [ $tries -lt 300 ] && kill -0 $daemon 2>/dev/null; } || { cat "$scratch/said"; fail "it does not serve"; }
        sleep 0.1
    done
}
# The daemon is the only process of its namespace's init.
stop() {
    kill "$(cat "/proc/$daemon/task/$daemon/children")"
    wait "$daemon" || fail "the daemon does not end in order"
    daemon=
}
client() { # commands of qemu-io
    said=$(printf '%s\n' "$@" | qemu-io -f raw "nbd+unix:///tank/a?socket=$root/run/nbd.sock" 2>&1) ||
        fail "NBD: $said"
    ! echo "$said" | grep -qi 'fail\|error' || fail "NBD: $said"
}
serve
client 'write -P 7 1M 20M' flush 'read -P 7 1M 20M'

# The same package with a higher version, while the old program serves.
dpkg-deb -R "$package" "$scratch/higher"
sed -i "s/^Version: .*/Version: $version+upgraded/" "$scratch/higher/DEBIAN/control"
dpkg-deb --root-owner-group -b "$scratch/higher" "$scratch/higher.deb" >/dev/null
install_package "$scratch/higher.deb"
within 'dpkg-query -W -f "\${Version}\n" stripewise' | grep -q '+upgraded$' || fail "it is not upgraded"
client 'read -P 7 1M 20M'
stop
serve
client 'read -P 7 1M 20M' 'write -P 8 30M 1M' flush
within 'stripewise pool scrub tank --check-only >/dev/null' || fail "a scrub finds errors"
stop

within 'dpkg --purge stripewise' >"$scratch/log" 2>&1 || { cat "$scratch/log"; fail "it is not purged"; }
rm -rf "$root/usr/sbin/policy-rc.d" "$root/srv/drives" "$root/run/nbd.sock"
files >"$scratch/after"
diff "$scratch/before" "$scratch/after" >"$scratch/left" || { cat "$scratch/left"; fail "the purge leaves files"; }
echo "deb-in-debian: $version installed in $2, served, upgraded while it served, purged; nothing is left"
