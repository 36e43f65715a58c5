#!/bin/sh
# What the interleave is worth: each layout in each state with strips of several lengths. In virtual
# time, so the figures repeat exactly: drives of 200 MB/s and 200 requests a second, the modelled
# 8 TB disk of study 004, the modelled SSD of study 002.
#
#     bench-interleave.sh STRIPEWISE [LAYOUTS [MODELS]]
set -eu
program=$1
layouts=${2:-raid0,raid5,raid10}
models=${3:-fixed:5ms,200MB/s,1 mg08ada400e x25e}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
for model in $models; do
    for interleave in 32KiB 64KiB 128KiB 256KiB 512KiB 1MiB; do
        echo "== $model, interleave $interleave"
        "$program" evaluate --model "$model" --layouts "$layouts" --interleave "$interleave" \
            --size 512MiB --seconds 4 --runs 1 --out "$out" 2>/dev/null |
            sed -n '/^Throughput/,/^$/p'
    done
done
