# What is compared, for bench.sh: how each candidate is made, loaded, robbed of a drive, rebuilt.
#   md            Linux md, /dev/md0, loaded by fio with io_uring
#   engine        our engine in the process that loads it, no checksums, no journal, as md here
#   engine-sums   the same with checksums and the journal they need
#   nbd           a volume without checksums, over `stripewise serve` and a unix socket, loaded by fio's nbd engine
#   nbd-sums      the same with checksums
# Part N of each RAM drive belongs to candidate N.
# shellcheck shell=bash disable=SC2154 # layout, pairs and so on are bench.sh's

declare -A part=([md]=1 [engine]=2 [engine-sums]=3 [nbd]=4 [nbd-sums]=5)
# The drive in column 1, which is lost, and the one that waits.
declare -A second spare
# Data and redundancy of every candidate on each drive, MiB.
member_mib=100
mkfifo /run/nobody
exec 9<>/run/nobody
pause() { read -r -t "$1" -u 9 || true; } # without a process
now_ms() { echo $((${EPOCHREALTIME/./} / 1000)); }

kind() { case $1 in engine*) echo engine ;; nbd*) echo nbd ;; *) echo md ;; esac; }
drive() { echo "/dev/ram$2p${part[$1]}"; } # candidate, drive
first_four() { for number in 0 1 2 3; do drive "$1" $number; done; }
swap() {
    local lost=${second[$1]}
    second[$1]=${spare[$1]}
    spare[$1]=$lost
}

# --- all of them ----------------------------------------------------------------------------------------------------------
make_candidates() {
    # Strips of data in a row of four.
    case $layout in raid5) span_mib=$((3 * member_mib)) ;; raid10) span_mib=$((2 * member_mib)) ;; *) return 1 ;; esac
    local candidate
    for candidate in "${candidates[@]}"; do second[$candidate]=1 spare[$candidate]=4; done
    # shellcheck disable=SC2046 # lists of drives
    mdadm --quiet --create /dev/md0 --run --metadata=1.2 --assume-clean --level="${layout#raid}" --raid-devices=4 --chunk=64 \
        --bitmap=none --size=$((member_mib * 1024)) $(first_four md) || return
    [ "$layout" != raid5 ] || echo 4096 >/sys/block/md0/md/stripe_cache_size
    start_engine engine plain || return
    start_engine engine-sums checksums || return
    start_volumes || return
    for candidate in md nbd nbd-sums; do load_"$(kind $candidate)" $candidate write 1M 16 "$((span_mib * 10))" >/dev/null; done
}
end_candidates() {
    mdadm --quiet --stop /dev/md0
    exec 3>&- 4<&- 5>&- 6<&-
    kill "$server"
    wait
}
# What fio says of the load, MB/s.
fio_rate() { # pattern, block, depth, milliseconds, options...
    local pattern=$1 block=$2 depth=$3 time=$4
    shift 4
    # Threads, and no clock read for each request: in the guest both cost more than the request.
    timeout 120 fio --name=x --thread --gtod_reduce=1 "$@" --rw="$pattern" --bs="$block" --iodepth="$depth" --size="${span_mib}M" --runtime="${time}ms" \
        --time_based --norandommap --randrepeat=0 --output-format=terse --terse-version=3 2>/run/fio.err |
        awk -F';' '$1 == 3 { printf "%.3f\n", ($7 + $48) * 1.024 / 1000; found = 1 } END { if (!found) print "failed" }'
}
# Random writes that go on while a drive is rebuilt by the command given; the answer is what was rebuilt and what was written, MB/s.
beside_writes() { # fio's options as one word, command...
    local options=$1 began ended
    shift
    rm -f /run/log*
    # shellcheck disable=SC2086 # options
    fio --name=x --thread $options --rw=randwrite --bs=4k --iodepth=32 --size="${span_mib}M" --runtime=60 --time_based --norandommap \
        --randrepeat=0 --write_bw_log=/run/log --log_avg_msec=50 --log_unix_epoch=1 --output-format=terse >/run/fio.out 2>&1 &
    local writer=$!
    pause 1
    began=$(now_ms)
    "$@" || { kill -INT $writer; wait $writer; answer="failed failed"; return; }
    ended=$(now_ms)
    kill -INT $writer
    wait $writer
    answer=$(awk -F', ' -v began="$began" -v ended="$ended" -v bytes=$((member_mib * 1048576)) '
        $1 > began && $1 <= ended + 50 { sum += $2; count++ }
        END { printf "%.3f %s\n", bytes / 1000 / (ended - began), count ? sum / count * 1.024 / 1000 : "failed" }' /run/log_bw*.log)
}

# --- md -------------------------------------------------------------------------------------------------------------------
md_options="--filename=/dev/md0 --ioengine=io_uring --direct=1"
# shellcheck disable=SC2086 # options
load_md() { fio_rate "$2" "$3" "$4" "$5" $md_options; }
lose_md() {
    local lost
    lost=$(drive md "${second[md]}")
    mdadm --quiet /dev/md0 --fail "$lost" && pause 0.3
    mdadm --quiet /dev/md0 --remove "$lost" && mdadm --quiet --zero-superblock "$lost"
}
md_add() {
    local state=
    mdadm --quiet /dev/md0 --add "$(drive md "${spare[md]}")" || return
    # Until it is in sync: then nothing is degraded.
    until [ "$state" = 0 ]; do
        pause 0.02
        read -r state </sys/block/md0/md/degraded
    done
}
rebuild_md() {
    beside_writes "$md_options" md_add
    swap md
}

# --- the engine in its own process ----------------------------------------------------------------------------------------
declare -A to from
start_engine() { # candidate, plain or checksums
    rm -f /run/to /run/from
    mkfifo /run/to /run/from
    # shellcheck disable=SC2046 # a list of drives
    /share/array_load "$layout" "$2" "$span_mib" $(first_four "$1") </run/to >/run/from &
    if [ "$2" = plain ]; then
        exec 3>/run/to 4</run/from
        to[$1]=3 from[$1]=4
    else
        exec 5>/run/to 6</run/from
        to[$1]=5 from[$1]=6
    fi
    read -r -t 60 -u "${from[$1]}" answer && [ "$answer" = ready ]
}
ask() { # candidate, order...
    echo "${*:2}" >&"${to[$1]}"
    answer=failed
    read -r -t 60 -u "${from[$1]}" answer
}
in_bytes() { case $1 in 4k) echo 4096 ;; 1M) echo 1048576 ;; esac; }
load_engine() {
    ask "$1" load "$2" "$(in_bytes "$3")" "$4" "$5"
    echo "$answer"
}
lose_engine() { ask "$1" fail 1; }
rebuild_engine() {
    ask "$1" rebuild 1 "$(drive "$1" "${spare[$1]}")" randwrite 4096 32
    swap "$1"
}

# --- volumes over NBD -----------------------------------------------------------------------------------------------------
stripewise() { /share/stripewise --quiet "$@" 2>/run/said || { cat /run/said >&2; return 1; }; }
start_volumes() {
    rm -rf "$STRIPEWISE_HOME"
    mkdir -p "$STRIPEWISE_HOME"
    local candidate checksums
    for candidate in nbd nbd-sums; do
        case $candidate in nbd) checksums=off ;; *) checksums=on ;; esac
        # shellcheck disable=SC2046 # a list of drives
        stripewise pool create $candidate $(first_four $candidate) --force >/dev/null || return
        stripewise pool set $candidate rebuild-priority=100 patrol-interval=none >/dev/null || return
        stripewise volume create $candidate/v --layout "$layout" --size "${span_mib}MiB" --checksums $checksums >/dev/null || return
    done
    /share/stripewise --quiet serve --nbd unix:/run/nbd.sock >/run/ready &
    server=$!
    local tries=0
    until grep -q ready /run/ready; do
        kill -0 $server && [ $((tries += 1)) -lt 300 ] || return
        pause 0.1
    done
    return 0
}
nbd_options() { echo "--ioengine=nbd --uri=nbd+unix:///$1/v?socket=/run/nbd.sock"; }
# shellcheck disable=SC2046 # options
load_nbd() { fio_rate "$2" "$3" "$4" "$5" $(nbd_options "$1"); }
lose_nbd() { stripewise pool offline "$1" "$(drive "$1" "${second[$1]}")" >/dev/null; }
nbd_replace() { stripewise pool replace "$1" "$(drive "$1" "${second[$1]}")" "$(drive "$1" "${spare[$1]}")" --force --wait >/dev/null; }
rebuild_nbd() {
    beside_writes "$(nbd_options "$1")" nbd_replace "$1"
    swap "$1"
}
