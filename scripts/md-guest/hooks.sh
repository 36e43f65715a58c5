#!/bin/bash
# In the guest, from scripts/bench-md.sh --hooks: RAID 5 of md on RAM drives goes through normal, degraded, rebuilding and recovered by the
# example profiles/hooks/mdadm.toml, and every byte is compared. What it finds goes to /share/results.
set -uo pipefail
# shellcheck source=/dev/null
. /share/settings
cd /run
export STRIPEWISE_HOME=/run/home LOST=/dev/ram1 NEW=/dev/ram4
modprobe brd rd_nr=5 rd_size=$((drive_mib * 1024))
modprobe raid456
# KiB/s: the rebuild lasts long enough to be measured.
echo 4000 >/proc/sys/dev/raid/speed_limit_max
mdadm --quiet --create /dev/md0 --run --metadata=1.2 --assume-clean --level=5 --raid-devices=4 --chunk=64 --bitmap=none \
    /dev/ram0 /dev/ram1 /dev/ram2 /dev/ram3 || exit 1
cat >/run/load.toml <<'END'
name = "small-mix"
runs = 1
seconds = 2.0
verify = true

[[measurement]]
name = "mixed"
read_percents = [50]
pattern = "random"
blocks = ["64KiB"]
depths = [4]
END
echo "guest, $SECONDS s: md is there, $(uname -r)"
timeout 300 /share/stripewise lab run /dev/md0 --force --profile /run/load.toml --size 48MiB \
    --scenario failure --hooks /share/mdadm.toml >>/share/results 2>/run/err || { cat /run/err; exit 1; }
echo "guest, $SECONDS s: $(mdadm --detail /dev/md0 | grep -E 'State :|/dev/ram' | tr -s ' \n' ' ')"
mdadm --quiet --stop /dev/md0
