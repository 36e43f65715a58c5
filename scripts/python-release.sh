#!/bin/sh
# The Python package as it is released, in an environment of its own (target/python/NAME):
#
#   cluster   its tests on a cluster of Ray on this machine (`make soak`; a download of 100 MB)
#   bench     parity beside pyeclib and zfec, and the scaling of Ray tasks in a simulation (`make bench`)
#
# Passed over, with a message, where there is no Python 3.9 or newer with venv, or no network.
#
# usage: scripts/python-release.sh cluster|bench
set -eu
cd "$(dirname "$0")/.."
purpose=${1:?usage: scripts/python-release.sh cluster|bench}
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
environment=$target/python/$purpose
case $purpose in
cluster) needed='ray==2.60.0 pyarrow pytest' others= ;;
bench) needed='numpy' others='zfec pyeclib' ;;
*)
    echo "error: unknown purpose $purpose" >&2
    exit 2
    ;;
esac
pip() { "$environment/bin/pip" --quiet --disable-pip-version-check "$@"; }
if ! python3 -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 9))' 2>/dev/null; then
    echo "$purpose of the Python package: passed over, as it needs Python 3.9 or newer with venv and pip"
    exit 0
fi
[ -x "$environment/bin/pip" ] || python3 -m venv "$environment"
# shellcheck disable=SC2086
if ! pip install $needed; then
    echo "$purpose of the Python package: passed over, as $needed cannot be installed"
    exit 0
fi
for package in $others; do
    pip install "$package" || echo "going on without $package"
done
scripts/python-wheel.sh
pip install --no-deps --no-index --force-reinstall "$target"/wheels/stripewise-*.whl
case $purpose in
cluster)
    cd python/cluster
    PYTHONDONTWRITEBYTECODE=1 "$environment/bin/python" -m pytest -q -p no:cacheprovider
    ;;
bench)
    "$environment/bin/python" python/bench/parity.py
    "$environment/bin/python" python/bench/scaling.py
    ;;
esac
