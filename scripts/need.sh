#!/bin/sh
# What the Makefile's commands need from the system, in this one place: checks for it, installs what is missing by name
# (Debian and its relatives, as root or through sudo), or says what to install. Installs nothing that is there already.
#
# usage: scripts/need.sh build|check|test|soak|bench|bench-md|fuzz|deb|guest|iscsi
set -eu

purpose=${1:?usage: scripts/need.sh build|check|test|soak|bench|bench-md|fuzz|deb|guest|iscsi}
packages=
reasons=
# Whether this can go on without the packages: only what cannot be tested is passed over then, and says so.
can_do_without=

missing() { # package, what for
    packages="$packages $1"
    reasons="$reasons
  $1: $2"
}

# --- Rust: the one thing these commands expect to find -------------------------------------------------------------
if ! command -v cargo >/dev/null 2>&1; then
    echo "error: cargo is not on the PATH: a Rust toolchain (1.95 or newer) is needed to build Stripewise" >&2
    echo "hint: install it from https://rustup.rs, open a new shell, then run this command again" >&2
    exit 1
fi
if [ "$purpose" = test ] || [ "$purpose" = check ]; then
    for component in rustfmt clippy; do
        case $component in rustfmt) probe="cargo fmt --version" ;; *) probe="cargo clippy --version" ;; esac
        if ! $probe >/dev/null 2>&1; then
            if command -v rustup >/dev/null 2>&1; then
                echo "installing the Rust component $component (part of the tests)"
                rustup component add "$component"
            else
                echo "error: the tests run $component, which this Rust toolchain does not have" >&2
                echo "hint: install the toolchain's $component package, or use a toolchain from https://rustup.rs" >&2
                exit 1
            fi
        fi
    done
fi

if [ "$purpose" = fuzz ] && ! cargo fuzz --version >/dev/null 2>&1; then
    echo "installing cargo-fuzz (what runs the fuzzers), built from its source"
    cargo install cargo-fuzz --locked --quiet
fi

if [ "$purpose" = deb ] && ! cargo deb --version >/dev/null 2>&1; then
    echo "installing cargo-deb (what makes the package), built from its source"
    cargo install cargo-deb --locked --quiet
fi

if [ "$purpose" = soak ] && ! command -v fsx >/dev/null 2>&1; then
    echo "installing fsx (what exercises files on volumes), built from its source"
    cargo install fsx --locked --quiet || echo "going on without it: its part of the tests is passed over"
fi

# --- system packages ----------------------------------------------------------------------------------------------
# Rust links with the system's C compiler driver; a compiler without the C library's start files cannot link either.
can_link() {
    command -v cc >/dev/null 2>&1 || return 1
    probe=$(mktemp -d)
    echo 'int main(void) { return 0; }' >"$probe/probe.c"
    result=0
    cc -o "$probe/probe" "$probe/probe.c" >/dev/null 2>&1 || result=1
    rm -rf "$probe"
    return $result
}
if ! can_link; then
    missing gcc "the linker that Rust uses"
    missing libc6-dev "the C library's start files, for linking"
fi
if [ "$purpose" = test ] || [ "$purpose" = check ]; then
    command -v python3 >/dev/null 2>&1 || missing python3 "scripts/run-tests.py, which runs the tests"
fi
if [ "$purpose" = bench ]; then
    command -v fio >/dev/null 2>&1 || missing fio "what the engine is compared with on files"
    command -v nbdkit >/dev/null 2>&1 || missing nbdkit "what the NBD server is compared with"
    # Erasure coding that the parity kernels are compared with.
    echo '#include <isa-l.h>' | cc -E -x c - >/dev/null 2>&1 || missing libisal-dev "what the parity kernels are compared with"
fi
if [ "$purpose" = bench-md ]; then
    PATH=$PATH:/usr/sbin:/sbin command -v debootstrap >/dev/null 2>&1 || missing debootstrap "the guest that has Linux md, which the engine is compared with"
fi
if [ "$purpose" = deb ]; then
    command -v dpkg-shlibdeps >/dev/null 2>&1 || missing dpkg-dev "the libraries that the package depends on"
    command -v lintian >/dev/null 2>&1 || missing lintian "the check of the package"
    PATH=$PATH:/usr/sbin:/sbin command -v debootstrap >/dev/null 2>&1 || missing debootstrap "a clean Debian to try it in"
    command -v qemu-io >/dev/null 2>&1 || missing qemu-utils "the NBD client for that"
fi
if [ "$purpose" = fuzz ]; then
    command -v c++ >/dev/null 2>&1 || missing g++ "the fuzzing library is C++"
fi
installed() { PATH=$PATH:/usr/sbin:/sbin command -v "$1" >/dev/null 2>&1; }
if [ "$purpose" = guest ]; then
    installed qemu-system-x86_64 || missing qemu-system-x86 "the virtual machine"
    installed cpio || missing cpio "what packs the guest's first file system"
    installed mke2fs || missing e2fsprogs "file systems in the guest"
    installed blkdiscard || missing util-linux "discards in the guest"
    installed fio || missing fio "what writes and verifies in the guest"
fi
if [ "$purpose" = iscsi ]; then
    installed tgtd || missing tgt "the iSCSI target"
    installed iscsi-test-cu || missing libiscsi-bin "what judges it"
    installed qemu-io || missing qemu-utils "one more initiator"
    set -- /usr/lib/*/qemu/block-iscsi.so
    [ -e "$1" ] || missing qemu-block-extra "its part for iSCSI"
    installed fusermount3 || missing fuse3 "mounted volumes"
    installed python3 || missing python3 "what writes the configuration"
fi
# Clients that the tests of servers talk to. On their own, at the end: nothing else depends on them.
if { [ "$purpose" = test ] || [ "$purpose" = soak ]; } && [ -z "$packages" ]; then
    can_do_without=yes
    command -v nbdcopy >/dev/null 2>&1 || missing libnbd-bin "NBD clients for the tests of the NBD server"
    PATH=/usr/bin:/bin python3 -c 'import nbd' >/dev/null 2>&1 || missing python3-libnbd "one more of them"
    command -v qemu-io >/dev/null 2>&1 || missing qemu-utils "one more of them"
    command -v nbdkit >/dev/null 2>&1 || missing nbdkit "one more of them"
    command -v fio >/dev/null 2>&1 || missing fio "one more of them"
    command -v openssl >/dev/null 2>&1 || missing openssl "certificates for the tests of TLS"
    installed ip || missing iproute2 "hosts of their own for the tests of drives over the network"
    installed losetup || missing util-linux "loop devices for the tests of mounted volumes"
    installed fusermount3 || missing fuse3 "unmounting for the tests of mounted volumes"
    installed mkfs.ext4 || missing e2fsprogs "a file system for these tests"
    installed mkfs.xfs || missing xfsprogs "one more"
    installed mkfs.btrfs || missing btrfs-progs "one more"
    command -v postmark >/dev/null 2>&1 || missing postmark "what our method of the same name is held against"
    installed bonnie++ || missing bonnie++ "the same"
    installed stress-ng || missing stress-ng "work for file systems on volumes"
    installed mdadm || missing mdadm "what tries the commands for Linux md that the advice prints"
    installed virt-xml-validate || missing libvirt-clients "the schema for the disk of a libvirt domain"
    installed xmllint || missing libxml2-utils "what checks it"
    installed chromium || missing chromium "the browser for the tests of the web console"
    installed node || missing nodejs "what drives it"
    installed npm || missing npm "what fetches packages for it (scripts/web-tools.sh)"
    # Debian has it in contrib only. Without its module, which nothing here needs.
    if ! installed zpool && apt-cache show zfsutils-linux >/dev/null 2>&1; then
        missing zfsutils-linux "the same for ZFS"
    fi
    # Not for make test: Debian's package starts a server of its own. The tests start another and leave that one alone.
    if [ "$purpose" = soak ]; then
        set -- /usr/lib/postgresql/*/bin/initdb
        [ -x "$1" ] || missing postgresql "a database on a volume"
    fi
fi
# FUSE beside btrfs, the same way: scripts/bench-fuse.sh passes over what is not there.
if [ "$purpose" = bench ] && [ -z "$packages" ]; then
    can_do_without=yes
    installed losetup || missing util-linux "loop devices, with which FUSE is measured"
    installed mkfs.btrfs || missing btrfs-progs "what FUSE is compared with"
    installed chattr || missing e2fsprogs "the same without checksums"
fi
[ -n "$packages" ] || exit 0

packages=${packages# }
echo "missing system packages:$reasons"
give_up() {
    if [ -n "$can_do_without" ]; then
        echo "going on without them: what needs them is passed over"
        exit 0
    fi
    exit 1
}
if ! command -v apt-get >/dev/null 2>&1; then
    echo "error: this system has no apt-get to install them with" >&2
    echo "hint: install what corresponds to: $packages" >&2
    give_up
fi
root=
if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null 2>&1; then
        echo "error: installing packages needs root, and there is no sudo" >&2
        echo "hint: as root: apt-get install $packages" >&2
        give_up
    fi
    root=sudo
fi
echo "installing: $packages"
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086 # the list is meant to be split
$root apt-get install -y --no-install-recommends $packages >/dev/null 2>&1 && exit 0
# Package lists of a fresh machine may be empty or old.
$root apt-get update -q >/dev/null || give_up
# shellcheck disable=SC2086
$root apt-get install -y -q --no-install-recommends $packages && exit 0
# One that this system does not have must not keep the others away.
failed=
for package in $packages; do
    $root apt-get install -y -q --no-install-recommends "$package" >/dev/null 2>&1 || failed="$failed $package"
done
[ -n "$failed" ] || exit 0
echo "could not be installed:$failed"
give_up
