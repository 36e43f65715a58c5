#!/bin/sh
# What each layout asks of its drives in each state, by cause: requests and positions for each
# request of a client and each MB rebuilt. In virtual time, so the counts repeat exactly: drives of
# 200 MB/s and 200 requests a second, the modelled 8 TB disk of study 004, the modelled SSD of study
# 002, and drives that answer at once.
#
#     bench-causes.sh STRIPEWISE [LAYOUTS]
set -eu
program=$1
layouts=${2:-raid0,raid5,raid10}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
for model in fixed:5ms,200MB/s,1 mg08ada800e x25e fixed:1us,4GB/s,64; do
    echo "== $model"
    "$program" evaluate --model "$model" --layouts "$layouts" --size 512MiB --seconds 4 --runs 1 \
        --causes --out "$out" 2>&1
done
