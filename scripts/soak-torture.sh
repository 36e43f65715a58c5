#!/bin/sh
# Fresh seeds of torture until the time is over, in blocks, with the release build. The first seed is that of the
# day, so that every day has others; a seed that breaks a promise is printed with the command that repeats it.
#
# usage: scripts/soak-torture.sh PATH-TO-STRIPEWISE SECONDS [FIRST-SEED]
set -eu
stripewise=${1:?usage: scripts/soak-torture.sh PATH-TO-STRIPEWISE SECONDS [FIRST-SEED]}
seconds=${2:?usage: scripts/soak-torture.sh PATH-TO-STRIPEWISE SECONDS [FIRST-SEED]}
first=${3:-$(($(date +%s) / 86400 * 100000))}
block=250
end=$(($(date +%s) + seconds))
seed=$first
while [ "$(date +%s)" -lt "$end" ]; do
    "$stripewise" --quiet simulate torture --seed "$seed" --runs $block
    seed=$((seed + block))
done
echo "torture: seeds $first to $((seed - 1)), none broke a promise"
