#!/bin/sh
# The daemon's OpenAPI description, checked by programs of other authors: openapi-spec-validator against the
# specification, jsonschema for each example against its schema. Both come from PyPI into a folder of their own;
# without Python or network it says so and ends well.
#
# usage: scripts/openapi.sh PATH-TO-STRIPEWISE
set -eu
stripewise=${1:?usage: scripts/openapi.sh PATH-TO-STRIPEWISE}
scratch=$(mktemp -d)
daemon=
trap '[ -z "$daemon" ] || kill "$daemon"; wait; rm -rf "$scratch"' EXIT
if ! python3 -m venv "$scratch/python" >/dev/null 2>&1 ||
    ! "$scratch/python/bin/pip" install --quiet --disable-pip-version-check openapi-spec-validator==0.9.0 \
        >/dev/null 2>&1; then
    echo "openapi: passed over, openapi-spec-validator cannot be installed"
    exit 0
fi
STRIPEWISE_HOME=$scratch/home "$stripewise" --quiet serve >"$scratch/said" &
daemon=$!
until grep -q '^ready' "$scratch/said"; do
    kill -0 $daemon
    sleep 0.1
done
"$scratch/python/bin/python" - "$scratch/home/http.sock" <<'CHECK'
"""Reads the description from the daemon's socket, and checks it with its examples."""
import http.client
import json
import socket
import sys

from jsonschema import Draft202012Validator
from openapi_spec_validator import validate

connection = http.client.HTTPConnection("localhost")
connection.sock = socket.socket(socket.AF_UNIX)
connection.sock.connect(sys.argv[1])
connection.request("GET", "/api/v1/openapi.json")
description = json.load(connection.getresponse())
validate(description)
count = 0
for path, item in description["paths"].items():
    for method, operation in item.items():
        bodies = [operation.get("requestBody", {}), *operation["responses"].values()]
        for media in (media for body in bodies for media in body.get("content", {}).values()):
            for name in media.get("examples", {}):
                schema = dict(media["schema"], components=description["components"])
                example = description["components"]["examples"][name]["value"]
                Draft202012Validator(schema).validate(example)
                count += 1
print(f"openapi: {len(description['paths'])} paths and {count} examples are valid")
CHECK
