// Sizes, durations and probabilities read as those of the command line, which the test sends.

import { readFileSync } from 'node:fs';

// A module by its bytes: the folder has no package.json that would say what kind its files are.
const source = readFileSync(new URL('../../web/lib/units.js', import.meta.url), 'utf8');
const units = await import(`data:text/javascript,${encodeURIComponent(source)}`);
for (const [name, value, expected] of JSON.parse(process.env.UNITS_TEST)) {
  const text = units[name](value);
  if (text !== expected) throw new Error(`${name}(${value}) is ${text} instead of ${expected}`);
}
