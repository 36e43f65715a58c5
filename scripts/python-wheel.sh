#!/bin/sh
# Builds the wheel of the Python package with the optimisations of a release, in target/wheels:
# one for CPython 3.9 and every newer version. maturin is taken from the PATH, or installed into an
# environment of its own.
set -eu
cd "$(dirname "$0")/.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
maturin=$(command -v maturin || true)
if [ -z "$maturin" ]; then
    maturin=$target/python/maturin/bin/maturin
    if [ ! -x "$maturin" ]; then
        python3 -m venv "$target/python/maturin"
        "$target/python/maturin/bin/pip" install --quiet --disable-pip-version-check "$(
            grep '^maturin==' python/tests/requirements.txt
        )"
    fi
fi
rm -rf "$target/wheels"
"$maturin" build --release --manifest-path python/Cargo.toml --target-dir "$target" --out "$target/wheels"
