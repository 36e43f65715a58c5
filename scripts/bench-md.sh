#!/bin/bash
# The engine and Linux md in turns on the same drives in memory, inside a guest: User-Mode Linux, whose kernel has md on any host. What runs
# there is scripts/md-guest/; what it finds comes out as ratios. Needs root, debootstrap, room in /dev/shm; a quarter of an hour at most,
# and before the first run what it takes to download the guest: a Debian and its kernel, from this machine's mirror.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
usage() {
    cat <<'END'
usage: scripts/bench-md.sh [OPTION...] STRIPEWISE ARRAY_LOAD
  STRIPEWISE    the program, as `make build` leaves it
  ARRAY_LOAD    the engine's example of that name (cargo build --release -p stripewise-array --example array_load)
  --pairs N     turns of md and the engine for each figure [5]
  --quick       three turns of 400 ms
  --time MS     length of one load [600]
  --tsc         our programs read the processor's counter for the clock, as fio does by itself: in this guest every look at the
                clock is else a system call (x86-64, needs cc)
  --limit S     the guest is ended after so many seconds [840]
  --fetch S     the first time: debootstrap, which downloads the guest's packages and unpacks them, and the download of its kernel
                are each given up after so many seconds [3600]
  --layouts L   with commas [raid5,raid10]
  --guest DIR   where the guest is kept, made there if need be [${XDG_CACHE_HOME:-~/.cache}/stripewise-guest]
  --raw FILE    keep the figures of every turn there
  --hooks       instead: md through a failure by `lab run --scenario failure` and profiles/hooks/mdadm.toml (ARRAY_LOAD may be left out)
END
}
fail() {
    echo "error: $1" >&2
    [ -z "${2:-}" ] || echo "hint: $2" >&2
    exit 1
}

pairs=5
time_ms=600
layouts=raid5,raid10
guest=${XDG_CACHE_HOME:-$HOME/.cache}/stripewise-guest
raw=
tsc=
limit_s=840
fetch_s=3600
hooks=
files=()
while [ $# -gt 0 ]; do
    case $1 in
    --quick) pairs=3 time_ms=400 ;;
    --pairs) pairs=${2:?} && shift ;;
    --time) time_ms=${2:?} && shift ;;
    --tsc) tsc=yes ;;
    --limit) limit_s=${2:?} && shift ;;
    --fetch) fetch_s=${2:?} && shift ;;
    --layouts) layouts=${2:?} && shift ;;
    --guest) guest=${2:?} && shift ;;
    --raw) raw=${2:?} && shift ;;
    --hooks) hooks=yes ;;
    --help) usage && exit 0 ;;
    -*) usage >&2 && exit 2 ;;
    *) files+=("$1") ;;
    esac
    shift
done
[ ${#files[@]} = 2 ] || { [ -n "$hooks" ] && [ ${#files[@]} = 1 ]; } || { usage >&2; exit 2; }
for file in "${files[@]}"; do [ -x "$file" ] || fail "$file is no program" "make build"; done
[ "$(id -u)" = 0 ] || fail "the guest's root folder belongs to root" "sudo $0 ..."

# Where a run may be at most: drives and the guest's own memory, both in a file without a name in /dev/shm.
drive_mib=640
memory_mib=$((5 * drive_mib + 1300))
[ -z "$hooks" ] || drive_mib=64 memory_mib=1100

# --- the guest: a Debian, and the kernel that runs as a program ----------------------------------------------------------
make_root() {
    command -v debootstrap >/dev/null || fail "debootstrap is not installed" "scripts/need.sh bench-md"
    local release mirror
    release=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
    # The mirror that this machine's own apt uses.
    # shellcheck disable=SC2016 # apt's own names
    mirror=$(apt-get indextargets --format '$(CODENAME) $(REPO_URI)' 'Created-By: Packages' 'Component: main' |
        awk -v release="$release" '$1 == release { print $2; exit }')
    [ -n "$mirror" ] || fail "apt knows no mirror of Debian $release" "apt-get update"
    echo "making the guest in $guest (once, some 400 MB): waiting for debootstrap, at most $fetch_s s;" \
        "it says how far it is in $guest/debootstrap.log" >&2
    rm -rf "$guest/root.part"
    local ended=0
    timeout "$fetch_s" debootstrap --variant=minbase --include=fio,mdadm,kmod,util-linux,procps,fdisk \
        "$release" "$guest/root.part" "$mirror" >"$guest/debootstrap.log" 2>&1 || ended=$?
    [ "$ended" != 124 ] || fail "debootstrap was not done after $fetch_s s: $(tail -n 1 "$guest/debootstrap.log")" "--fetch $((4 * fetch_s))"
    [ "$ended" = 0 ] || fail "debootstrap did not succeed: $(tail -n 1 "$guest/debootstrap.log")" "see $guest/debootstrap.log"
    rm -rf "$guest"/root.part/var/cache/apt/archives/*.deb "$guest"/root.part/var/lib/apt/lists/*
}
add_kernel() {
    rm -rf "$guest/kernel" && mkdir "$guest/kernel"
    (cd "$guest/kernel" && timeout "$fetch_s" apt-get -o APT::Sandbox::User=root download -qq user-mode-linux &&
        dpkg -x user-mode-linux_*.deb . && rm user-mode-linux_*.deb) ||
        fail "the package user-mode-linux could not be fetched" "apt-get update"
    mkdir -p "$guest/root.part/lib/modules" "$guest/root.part/share"
    cp -a "$guest"/kernel/usr/lib/uml/modules/* "$guest/root.part/lib/modules/"
    local modules
    for modules in "$guest"/kernel/usr/lib/uml/modules/*; do
        chroot "$guest/root.part" depmod "$(basename "$modules")"
    done
}
mkdir -p "$guest"
exec 9>"$guest/lock"
# Another run has it while it downloads the guest, and then for its own time.
flock --wait $((2 * fetch_s + limit_s)) 9 || fail "another run has $guest"
if [ ! -d "$guest/root" ]; then
    make_root
    add_kernel
    mv "$guest/root.part" "$guest/root"
fi

# --- the run --------------------------------------------------------------------------------------------------------------
free_mib=$(df --output=avail -m /dev/shm | tail -n 1)
[ "$free_mib" -gt "$memory_mib" ] || fail "/dev/shm has $free_mib MiB free, the guest wants $memory_mib MiB"
run=$(mktemp -d "${TMPDIR:-/tmp}/bench-md.XXXXXX")
kernel=
clean_up() {
    # The group of timeout, which is the guest's and nobody else's.
    [ -z "$kernel" ] || kill -KILL -- "-$kernel" 2>/dev/null || true
    rm -rf "$run"
}
trap clean_up EXIT
trap 'exit 1' INT TERM

install -m 755 "$here"/md-guest/* "$run/"
install -m 755 "${files[0]}" "$run/stripewise"
[ -n "$hooks" ] || install -m 755 "${files[1]}" "$run/array_load"
install -m 644 "$here/../profiles/hooks/mdadm.toml" "$run/mdadm.toml"
if [ -n "$hooks" ]; then echo hooks.sh; else echo bench.sh; fi >"$run/script"
install -m 755 "$here/md-guest/init" "$guest/root/bench-init"
printf '%s\n' "pairs=$pairs" "time_ms=$time_ms" "layouts='${layouts//,/ }'" "drive_mib=$drive_mib" "limit_s=$limit_s" >"$run/settings"
touch "$run/results"
if [ -n "$tsc" ]; then
    cc -O2 -shared -fPIC -o "$run/tsc_clock.so" "$here/md-guest/tsc_clock.c" || fail "the clock for --tsc could not be built" "scripts/need.sh build"
    echo "preload=/share/tsc_clock.so" >>"$run/settings"
fi

# One byte at a time: a read and a write, the cheapest system calls that move anything.
call_cost() { dd if=/dev/zero of=/dev/null bs=1 count=20000 2>&1 | awk '/copied/ { printf "%.0f\n", $(NF - 3) / 40000 * 1e9 }'; }
[ -n "$hooks" ] || echo "host call ns - 1 $(LC_ALL=C call_cost)" >>"$run/results"
declare -f call_cost >>"$run/settings"

TMPDIR=/dev/shm HOME=$run timeout --kill-after 5 "$limit_s" "$guest/kernel/usr/bin/linux.uml" "mem=${memory_mib}M" \
    root=/dev/root rootfstype=hostfs "rootflags=$guest/root" ro init=/bench-init "bench_share=$run" \
    con=null con0=null,fd:1 quiet loglevel=1 panic=-1 </dev/null 2>"$run/kernel.err" >"$run/console" &
kernel=$!
tail -n +1 --follow --pid="$kernel" "$run/console" >&2 &
ended=0
wait "$kernel" || ended=$?
kernel=
[ -z "$raw" ] || cp "$run/results" "$raw"
if [ -n "$hooks" ]; then
    cat "$run/results"
    for words in normal/mixed degraded/mixed recovered/mixed "none differ"; do
        grep -q "$words" "$run/results" || fail "the guest says nothing of: $words" "see what it printed above"
    done
else
    awk -f "$here/md-guest/ratios.awk" "$run/results"
fi
[ "$ended" != 124 ] && [ "$ended" != 137 ] || fail "the guest was ended after $limit_s s; the figures above are those it had" "--quick"
[ -e "$run/done" ] || fail "the guest ended early (status $ended): $(tail -n 3 "$run/kernel.err")"
