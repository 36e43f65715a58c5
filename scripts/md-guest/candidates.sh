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
    for candidate in nbd nbd-sums; do
        # shellcheck disable=SC2046 # options
        timeout 120 fio --name=fill $(fio_target $candidate) --rw=write --bs=1M --iodepth=16 --size="${span_mib}M" >/run/fio.out 2>&1 ||
            { cat /run/fio.out; return 1; }
    done
}
end_candidates() {
    mdadm --quiet --stop /dev/md0
    exec 3>&- 4<&- 5>&- 6<&-
    kill "$server"
    wait
}

# --- fio ------------------------------------------------------------------------------------------------------------------
# Starting it takes the guest seconds: one process of it has all the loads of a candidate, and each waits until it is its turn.
fio_target() { # candidate
    case $1 in
    md) echo "--filename=/dev/md0 --ioengine=io_uring --direct=1" ;;
    *) echo "--ioengine=nbd --uri=nbd+unix:///$1/v?socket=/run/nbd.sock" ;;
    esac
}
declare -A fio_pid go gone
stage_fio() { # candidate
    local round load options=() words
    rm -f "/run/$1.go" "/run/$1.gone" && mkfifo "/run/$1.go" "/run/$1.gone"
    # Both ends of both, so that nobody waits for the other to open them.
    exec {go[$1]}<>"/run/$1.go" {gone[$1]}<>"/run/$1.gone"
    for ((round = 1; round <= pairs; round++)); do
        for load in "${loads[@]}"; do
            read -r -a words <<<"$load"
            options+=(--name="r$round" --stonewall --rw="${words[0]}" --bs="${words[1]}" --iodepth="${words[2]}")
            # shellcheck disable=SC2207 # words
            options+=($(fio_target "$1") --exec_prerun="read x </run/$1.go" --exec_postrun="{ echo >/run/$1.gone; }"
                --size="${span_mib}M" --runtime="${time_ms}ms" --time_based --norandommap --randrepeat=0 --thread --gtod_reduce=1)
        done
    done
    fio --output-format=terse --terse-version=3 --eta=never "${options[@]}" >"/run/$1.out" 2>"/run/$1.err" &
    fio_pid[$1]=$!
}
load_fio() { # candidate
    answer=
    echo >&"${go[$1]}"
    read -r -t 60 -u "${gone[$1]}" || { cat "/run/$1.out" "/run/$1.err"; return 1; }
}
end_stage_fio() {
    kill -INT "${fio_pid[$1]}" 2>/dev/null
    # What still waits for its turn gets it, and ends at once.
    local number
    for ((number = 0; number < pairs * ${#loads[@]}; number++)); do echo >&"${go[$1]}"; done
    while kill -0 "${fio_pid[$1]}" 2>/dev/null; do pause 0.1; done
    awk -F';' '$1 == 3 { printf "%.3f\n", ($7 + $48) * 1.024 / 1000 }' "/run/$1.out"
}

# Random writes beside rebuilds: each candidate's writer is stopped while it is not its turn.
declare -A windows
begin_writers() {
    local candidate
    for candidate in md nbd nbd-sums; do
        rm -f /run/$candidate-log*
        windows[$candidate]=
        # shellcheck disable=SC2046 # options
        fio --name=x --thread $(fio_target $candidate) --rw=randwrite --bs=4k --iodepth=32 --size="${span_mib}M" --runtime=600 --time_based \
            --norandommap --randrepeat=0 --write_bw_log=/run/$candidate-log --log_avg_msec=50 --log_unix_epoch=1 --eta=never \
            --output-format=terse >/run/$candidate.out 2>&1 &
        fio_pid[$candidate]=$!
    done
    # Until all are under way.
    pause 8
    for candidate in md nbd nbd-sums; do kill -STOP "${fio_pid[$candidate]}"; done
}
beside_writes() { # candidate, command...: what was rebuilt, MB/s
    local candidate=$1 began ended
    shift
    answer=failed
    # A rebuild without them would be another figure.
    kill -CONT "${fio_pid[$candidate]}" || { cat "/run/$candidate.out"; "$@"; return; }
    pause 0.5
    began=$(now_ms)
    if "$@"; then
        ended=$(now_ms)
        windows[$candidate]+="$began $ended "
        answer=$(awk "BEGIN { print $member_mib * 1048.576 / ($ended - $began) }")
    fi
    kill -STOP "${fio_pid[$candidate]}"
}
end_writers() {
    local candidate
    for candidate in md nbd nbd-sums; do
        kill -CONT "${fio_pid[$candidate]}" && kill -INT "${fio_pid[$candidate]}"
        wait "${fio_pid[$candidate]}"
        awk -F', ' -v windows="${windows[$candidate]}" -v start="$layout rebuild randwrite-4k-32 $candidate" '
            BEGIN { count = split(windows, at, " ") }
            { for (i = 1; i < count; i += 2) if ($1 > at[i] && $1 <= at[i + 1]) { sum[i] += $2; samples[i]++ } }
            END { for (i = 1; i < count; i += 2) print start, (i + 1) / 2, samples[i] ? sum[i] / samples[i] * 1.024 / 1000 : "failed" }
        ' /run/$candidate-log_bw*.log >>/share/results
    done
}

# --- md -------------------------------------------------------------------------------------------------------------------
stage_md() { stage_fio "$1"; }
load_md() { load_fio "$1"; }
end_stage_md() { end_stage_fio "$1"; }
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
    beside_writes md md_add
    swap md
}

# --- the engine in its own process ----------------------------------------------------------------------------------------
declare -A to from
start_engine() { # candidate, plain or checksums
    rm -f /run/to /run/from
    mkfifo /run/to /run/from
    # shellcheck disable=SC2046 # a list of drives
    LD_PRELOAD=${preload:-} /share/array_load "$layout" "$2" "$span_mib" $(first_four "$1") </run/to >/run/from &
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
stage_engine() { :; }
load_engine() { ask "$1" load "$2" "$(in_bytes "$3")" "$4" "$time_ms"; }
end_stage_engine() { :; }
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
    LD_PRELOAD=${preload:-} /share/stripewise --quiet serve --nbd unix:/run/nbd.sock >/run/ready 2>/run/served &
    server=$!
    local tries=0
    until grep -q ready /run/ready; do
        kill -0 $server && [ $((tries += 1)) -lt 300 ] || return
        pause 0.1
    done
    return 0
}
stage_nbd() { stage_fio "$1"; }
load_nbd() { load_fio "$1"; }
end_stage_nbd() { end_stage_fio "$1"; }
lose_nbd() { stripewise pool offline "$1" "$(drive "$1" "${second[$1]}")" >/dev/null; }
nbd_replace() { stripewise pool replace "$1" "$(drive "$1" "${second[$1]}")" "$(drive "$1" "${spare[$1]}")" --force --wait >/dev/null; }
rebuild_nbd() {
    beside_writes "$1" nbd_replace "$1"
    swap "$1"
}
