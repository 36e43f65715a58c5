#!/bin/sh
# Makes the environment in which the Python package is built and tested: target/python/environment,
# with the packages of python/tests/requirements.txt. Says what is missing, and fails, where there
# is no Python 3.9 or newer with venv and pip, or no network.
set -eu
cd "$(dirname "$0")/.."
to=${CARGO_TARGET_DIR:-target}/python
wanted="$(cat python/tests/requirements.txt) $(python3 --version 2>/dev/null || true)"
[ "$(cat "$to/requirements" 2>/dev/null)" != "$wanted" ] || exit 0
if ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null; then
    echo "the tests of the Python package need Python 3.9 or newer: apt-get install python3" >&2
    exit 1
fi
if ! python3 -c 'import venv, ensurepip' 2>/dev/null; then
    echo "the tests of the Python package need venv and pip: apt-get install python3-venv" >&2
    exit 1
fi
rm -rf "$to/environment"
mkdir -p "$to"
python3 -m venv "$to/environment"
"$to/environment/bin/pip" install --quiet --disable-pip-version-check -r python/tests/requirements.txt
echo "$wanted" >"$to/requirements"
