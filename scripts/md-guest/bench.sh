#!/bin/bash
# In the guest, from scripts/bench-md.sh: md and the engine in turns on the same RAM drives. Each drive is cut into five parts, so that all five
# candidates are there at the same time and are measured within seconds of each other. Figures go to /share/results:
#   LAYOUT STATE WHAT CANDIDATE ROUND VALUE        MB/s (10^6 bytes)
set -uo pipefail
. /share/settings
. /share/candidates.sh
cd /run # fio leaves files where it is
export STRIPEWISE_HOME=/run/home
loads=("randread 4k 32" "randwrite 4k 32" "read 1M 16" "write 1M 16")
candidates=(md engine engine-sums nbd nbd-sums)

note() { echo "guest, $SECONDS s: $*"; }
result() { # layout, state, what, candidate, round, value
    echo "$*" >>/share/results
}
# Each candidate is first in its turn.
in_turn() { # round
    local shift=$(($1 % ${#candidates[@]}))
    echo "${candidates[@]:shift}" "${candidates[@]:0:shift}"
}

make_drives() {
    modprobe brd rd_nr=5 rd_size=$((drive_mib * 1024)) max_part=15
    local drive part=$(((drive_mib - 4) / 5))
    for drive in 0 1 2 3 4; do
        # All their memory at once: the first write of a page costs more than the next.
        dd if=/dev/zero of=/dev/ram$drive bs=1M oflag=direct status=none 2>/dev/null
        { echo "label: gpt"; for _ in 1 2 3 4 5; do echo "size=${part}MiB"; done; } | sfdisk --quiet /dev/ram$drive
    done
}

rounds_of_loads() { # state, until when (seconds)
    local round candidate load number=0 ran=0
    for candidate in "${candidates[@]}"; do stage_"$(kind "$candidate")" "$candidate" || return; done
    for ((round = 1; round <= pairs; round++)); do
        [ "$SECONDS" -lt "$2" ] || { note "no time for more rounds"; break; }
        for load in "${loads[@]}"; do
            for candidate in $(in_turn "$round"); do
                # shellcheck disable=SC2086 # three words
                load_"$(kind "$candidate")" "$candidate" $load || { note "$candidate does not answer"; return 1; }
                [ -z "$answer" ] || result "$layout" "$1" "${load// /-}" "$candidate" "$round" "$answer"
            done
        done
        ran=$round
    done
    # What fio found out, it says at the end.
    for candidate in "${candidates[@]}"; do
        number=0
        while read -r answer; do
            load=${loads[number % ${#loads[@]}]}
            round=$((number / ${#loads[@]} + 1))
            # What it still had to do is no turn.
            [ "$round" -gt "$ran" ] || result "$layout" "$1" "${load// /-}" "$candidate" "$round" "$answer"
            number=$((number + 1))
        done < <(end_stage_"$(kind "$candidate")" "$candidate")
    done
}

rounds_of_rebuilds() { # until when
    local round candidate
    begin_writers
    for ((round = 1; round <= pairs; round++)); do
        [ "$SECONDS" -lt "$1" ] || { note "no time for more rounds"; break; }
        for candidate in $(in_turn "$round"); do
            [ "$round" = 1 ] || lose_"$(kind "$candidate")" "$candidate" || return
            # Not in a subshell: it notes which drive is now where.
            rebuild_"$(kind "$candidate")" "$candidate"
            read -r rebuilt written <<<"$answer"
            result "$layout" rebuild rebuilt "$candidate" "$round" "$rebuilt"
            [ -z "$written" ] || result "$layout" rebuild randwrite-4k-32 "$candidate" "$round" "$written"
        done
    done
    end_writers
}

result guest call ns - 1 "$(call_cost)"
make_drives
for module in raid456 raid10; do modprobe $module; done
# As fast as it can, whatever clients do; the engine is told the same.
echo 10000000 >/proc/sys/dev/raid/speed_limit_max
echo 10000000 >/proc/sys/dev/raid/speed_limit_min
note "drives are there: $(uname -sr), $(nproc) processor"

# shellcheck disable=SC2154 # from settings
set -- $layouts
each=$(((limit_s - SECONDS - 40) / $#))
for layout; do
    begun=$SECONDS
    make_candidates || exit 1
    note "$layout: made, normal"
    rounds_of_loads normal $((begun + each * 34 / 100)) || exit 1
    for candidate in "${candidates[@]}"; do lose_"$(kind "$candidate")" "$candidate" || exit 1; done
    note "$layout: degraded"
    rounds_of_loads degraded $((begun + each * 62 / 100)) || exit 1
    note "$layout: rebuilding"
    rounds_of_rebuilds $((begun + each)) || exit 1
    end_candidates
done
note "done"
