#!/bin/sh
# Builds the wheel of the Python package as tests are built (profile `dev`), installs it beside what
# scripts/python-tools.sh fetched, and runs its tests. Answers are compared with those of
# target/debug/stripewise, which scripts/run-tests.py built. All tests are skipped, with a message,
# where the environment is not there.
#
# usage: scripts/python-tests.sh [ARGUMENT OF PYTEST...]
set -eu
cd "$(dirname "$0")/.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
environment=$target/python/environment
if [ ! -e "$target/python/requirements" ]; then
    echo 'tests of the Python package are skipped: scripts/python-tools.sh could not set them up'
    exit 0
fi
rm -rf "$target/python/wheels"
# Every file is read again: pip takes nothing that was built before.
PATH=$environment/bin:$PATH maturin build --quiet --profile dev --manifest-path python/Cargo.toml \
    --target-dir "$target" --out "$target/python/wheels"
"$environment/bin/pip" install --quiet --disable-pip-version-check --no-deps --no-index \
    --force-reinstall "$target"/python/wheels/stripewise-*.whl
cd python/tests
STRIPEWISE_PROGRAM=$target/debug/stripewise PYTHONDONTWRITEBYTECODE=1 \
    "$environment/bin/python" -m pytest -q -p no:cacheprovider --durations 5 "$@"
