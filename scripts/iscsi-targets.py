#!/usr/bin/env python3
"""Writes the configuration of tgt, an iSCSI target, for volumes of a pool that are files of a mounted folder (docs/iscsi.md).

usage: scripts/iscsi-targets.py [--program STRIPEWISE] [--prefix IQN] [--initiator ADDRESS]... FOLDER POOL [VOLUME...]

FOLDER is where `stripewise mount POOL FOLDER` shows them, or FOLDER/POOL of `serve --fuse FOLDER`. Without VOLUME: all
volumes of the pool. A volume is the target IQN:POOL.VOLUME, its only disk is LUN 1. The disk's serial number comes from the volume's id,
so it is the same after a restart and with other volumes in the file. VOLUME@SNAPSHOT is read-only.
"""
import argparse
import json
import os
import re
import subprocess
import sys


def fail(message, hint):
    sys.exit(f"error: {message}\nhint: {hint}")


def volumes(program, pool):
    """Volumes of the pool, as the program lists them."""
    command = [program, "--quiet", "volume", "list", pool, "--json"]
    listed = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if listed.returncode != 0:
        fail(f"`{program} volume list {pool}` failed", "is the name of the pool right?")
    return {volume["name"]: volume for volume in json.loads(listed.stdout)["volumes"]}


def target(arguments, name, volume):
    """The part of the configuration that is one volume."""
    path = os.path.join(os.path.abspath(arguments.folder), name)
    if not os.path.isfile(path):
        fail(f"{path} is not there",
             "FOLDER is where the pool's volumes are files: `stripewise mount` or `serve --fuse`")
    if re.search(r"[\s<>#\"]", path):
        fail(f"tgt cannot read the path {path} from a file",
             "mount in a folder without spaces, quotes, <, > and #")
    is_read_only = "@" in name
    block_bytes = 4096 if volume["log"] else 512
    # 36 characters at most; a snapshot's own follow its volume's.
    identity = volume["id"].replace("-", "")[:16] + ("-" + name.split("@")[1] if is_read_only else "")
    iqn = f"{arguments.prefix}:{arguments.pool}.{name}".lower()
    if re.search(r"[^a-z0-9.:@-]", iqn):
        fail(f"{iqn} is no name for a target",
             "names of volumes for iSCSI have letters, digits, `.` and `-` only")
    lines = [
        f"<target {iqn.replace('@', ':')}>",
        f"    <backing-store {path}>",
        "        lun 1",
        "        vendor_id STRPWISE",
        f"        scsi_sn {identity[:36]}",
        f"        scsi_id {identity[:24]}",
        f"        block-size {block_bytes}",
        "        params thin_provisioning=1",
        "    </backing-store>",
        *[f"    initiator-address {address}" for address in arguments.initiator],
        "</target>",
    ]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--program", default="stripewise")
    parser.add_argument("--prefix", default="iqn.2026-01.local.stripewise",
                        help="beginning of the targets' names")
    parser.add_argument("--initiator", action="append", default=[],
                        help="address that may connect; default: all")
    parser.add_argument("folder")
    parser.add_argument("pool")
    parser.add_argument("volume", nargs="*")
    arguments = parser.parse_args()
    known = volumes(arguments.program, arguments.pool)
    print("# Written by iscsi-targets.py of Stripewise.")
    for name in arguments.volume or sorted(known):
        volume = known.get(name.split("@")[0])
        if volume is None:
            fail(f"pool {arguments.pool} has no volume {name}", f"it has: {', '.join(sorted(known))}")
        print(target(arguments, name, volume))


main()
