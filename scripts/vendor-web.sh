#!/bin/sh
# Fetches the libraries of the web console at pinned versions into web/vendor, with their
# licences. Only needed to change a version: the result is in the repository. Names of modules
# become relative paths, since the console's policy allows no import map; uPlot, which has a
# minified form for plain scripts only, gets an export.
#
# usage: scripts/vendor-web.sh (needs npm)
set -eu
cd "$(dirname "$0")/.."
PREACT=11.2.0 SIGNALS=2.11.4 SIGNALS_CORE=1.14.5 HTM=3.1.1 UPLOT=1.6.32
from=target/vendor-web
to=web/vendor
mkdir -p "$from" "$to"
npm install --silent --no-audit --no-fund --no-save --ignore-scripts --prefix "$from" \
    "preact@$PREACT" "@preact/signals@$SIGNALS" "@preact/signals-core@$SIGNALS_CORE" "htm@$HTM" "uplot@$UPLOT"
modules=$from/node_modules

module() { # file in node_modules, name here
    sed -e '/^\/\/# sourceMappingURL/d' -e 's|//# sourceMappingURL=.*$||' \
        -e 's|from"preact/hooks"|from"./hooks.js"|g' -e 's|from"preact"|from"./preact.js"|g' \
        -e 's|from"@preact/signals-core"|from"./signals-core.js"|g' "$modules/$1" >"$to/$2"
}
module preact/dist/preact.mjs preact.js
module preact/hooks/dist/hooks.mjs hooks.js
module @preact/signals-core/dist/signals-core.mjs signals-core.js
module @preact/signals/dist/signals.mjs signals.js
module htm/dist/htm.mjs htm.js
module uplot/dist/uPlot.iife.min.js uplot.js
echo 'export default uPlot;' >>"$to/uplot.js"
cp "$modules/uplot/dist/uPlot.min.css" "$to/uplot.css"
for package in preact @preact/signals @preact/signals-core htm uplot; do
    cp "$modules/$package/LICENSE" "$to/LICENSE.$(echo "$package" | tr -d @ | tr / -)"
done
# Types, for the check by tsc: those of the packages.
echo "export * from 'preact';" >"$to/preact.d.ts"
echo "export * from 'preact/hooks';" >"$to/hooks.d.ts"
echo "export * from '@preact/signals';" >"$to/signals.d.ts"
echo "export { default } from 'htm';" >"$to/htm.d.ts"
echo "export { default } from 'uplot';" >"$to/uplot.d.ts"
cat >"$to/README.md" <<END
# Libraries of the web console

Fetched by \`scripts/vendor-web.sh\`; do not edit.

| library | version | licence |
|---|---|---|
| [Preact](https://preactjs.com) | $PREACT | MIT |
| [Preact Signals](https://github.com/preactjs/signals) | $SIGNALS, core $SIGNALS_CORE | MIT |
| [htm](https://github.com/developit/htm) | $HTM | Apache-2.0 |
| [uPlot](https://github.com/leeoniya/uPlot) | $UPLOT | MIT |
END
ls -l "$to"
