#!/bin/sh
# Two daemons in turns, with one core and with several, over volumes of the same kind on four files in memory: fio's nbd engine on unix
# sockets. The volume of the second daemon has as many slices as cores, or one (`whole`). Prints medians of the ratios of the rates.
# Server and fio share the machine's cores, so the ratio says less the fewer there are. Without fio's nbd engine it says so, and ends well.
#
# usage: scripts/bench-cores.sh PATH-TO-STRIPEWISE [PAIRS [SECONDS [CORES]]]
# 5 pairs of 2 s (the default) take five minutes.
set -eu
stripewise=${1:?usage: scripts/bench-cores.sh PATH-TO-STRIPEWISE [PAIRS [SECONDS [CORES]]]}
pairs=${2:-5}
seconds=${3:-2}
cores=${4:-2}
fio --enghelp=nbd >/dev/null 2>&1 || { echo "cores: passed over: there is no fio with the nbd engine"; exit 0; }

work=$(mktemp -d /dev/shm/bench-cores.XXXXXX)
servers=
clean_up() {
    for server in $servers; do kill "$server" 2>/dev/null && wait "$server" || true; done
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 1' INT TERM

serve() { # name, number of cores, slices
    export STRIPEWISE_HOME="$work/$1"
    mkdir "$STRIPEWISE_HOME"
    "$stripewise" --quiet drive make "$work/$1/d" --count 4 --size 512MiB >/dev/null
    "$stripewise" --quiet pool create bench "$work/$1"/d/drive*.img >/dev/null
    for layout in raid0 raid5; do
        "$stripewise" --quiet volume create bench/$layout --layout $layout --size 320MiB --slices "$3" >/dev/null
    done
    "$stripewise" --quiet serve bench --nbd "unix:$work/$1.sock" --cores "$2" >"$work/$1/ready" 2>"$work/$1/said" &
    servers="$! $servers"
    until grep -q ready "$work/$1/ready"; do
        kill -0 "$!" 2>/dev/null || { cat "$work/$1/said"; exit 1; }
        sleep 0.1
    done
}

load() { # name of the server, layout, pattern, block, depth, connections, seconds: prints the rate in bytes per second
    fio --name=load --ioengine=nbd --uri="nbd+unix:///bench/$2?socket=$work/$1.sock" --rw="$3" --bs="$4" --iodepth="$5" \
        --size=320M --offset_increment=0 --numjobs="$6" --group_reporting --time_based --runtime="$7" --output-format=json \
        | python3 -c 'import json, sys
# The engine has a line of its own before the document.
text = sys.stdin.read()
job = json.loads(text[text.index("{"):])["jobs"][0]
print(job["read"]["bw_bytes"] + job["write"]["bw_bytes"])'
}

serve one 1 1
serve several "$cores" "$cores"
serve whole "$cores" 1
for name in one several whole; do for layout in raid0 raid5; do load $name $layout write 1m 4 1 3 >/dev/null; done; done
echo "cores: rate with $cores cores, sliced and whole volume, to that with one; medians of $pairs pairs of $seconds s"
for layout in raid0 raid5; do
    for case in 'randread 4k 32 1' 'randwrite 4k 32 1' 'read 1m 16 1' 'write 1m 16 1' 'randread 4k 32 4' 'randwrite 4k 32 4'; do
        # shellcheck disable=SC2086
        set -- $case
        pair=0
        : >"$work/ratios"
        while [ "$pair" -lt "$pairs" ]; do
            one=$(load one $layout "$1" "$2" "$3" "$4" "$seconds")
            several=$(load several $layout "$1" "$2" "$3" "$4" "$seconds")
            whole=$(load whole $layout "$1" "$2" "$3" "$4" "$seconds")
            echo "$one $several $whole" >>"$work/ratios"
            pair=$((pair + 1))
        done
        python3 - "$work/ratios" "$layout $1 $2, depth $3, $4 connection(s)" <<'END'
import statistics, sys
rows = [[float(word) for word in line.split()] for line in open(sys.argv[1])]
ratio = lambda column: statistics.median(row[column] / row[0] for row in rows)
print(f"{sys.argv[2]}: {ratio(1):.2f} sliced, {ratio(2):.2f} whole ({statistics.median(row[0] for row in rows) / 1e6:.0f} MB/s with one)")
END
    done
done
