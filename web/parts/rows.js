// A map of the pool: for each drive its slabs from the first to the last, coloured by the redundancy
// that the rows they belong to have left.

import { html, useEffect, useState } from '../lib/html.js';
import { get, part } from '../lib/api.js';
import { counted, size } from '../lib/units.js';
import { bySlot } from './drives.js';

/** @type {[string, string][]} class of a colour, and its meaning */
const LEGEND = [
  ['full', 'full redundancy'], ['some', 'less redundancy'], ['none', 'no redundancy left'],
  ['bare', 'layout without redundancy'], ['lost', 'not readable'], ['hole', 'column not current'],
];

/** @param {any} run @returns {string} class of its colour */
function colour(run) {
  if (run.redundancy_left < 0) return 'lost';
  if (run.redundancy === 0) return 'bare';
  if (run.redundancy_left === 0) return 'none';
  return run.redundancy_left < run.redundancy ? 'some' : 'full';
}

/** @param {any[]} runs @returns {string} */
function inWords(runs) {
  if (!runs.length) return 'No rows are allocated.';
  /** @type {Map<string, number>} */
  const counts = new Map();
  for (const run of runs) {
    const left = run.redundancy_left < 0 ? 'not readable'
      : run.redundancy === 0 ? 'without redundancy' : `${run.redundancy_left} of ${run.redundancy} redundancy left`;
    const key = `volume ${run.volume}: ${left}`;
    counts.set(key, (counts.get(key) ?? 0) + run.rows);
  }
  return [...counts].map(([key, rows]) => `${key}, ${counted(rows, 'row')}`).join('; ');
}

/** @param {{ pool: any }} props */
export function RowMap({ pool }) {
  const [rows, setRows] = useState(/** @type {any} */ (null));
  const [problem, setProblem] = useState('');
  const done = pool.activity.map((/** @type {any} */ job) => Math.floor(job.percent)).join();
  useEffect(() => {
    let isCurrent = true;
    get(`/console/pools/${part(pool.name)}/rows`).then(
      (found) => isCurrent && setRows(found),
      (failure) => isCurrent && setProblem(failure.message));
    return () => {
      isCurrent = false;
    };
  }, [pool.name, pool.generation, pool.state, pool.condition, done]);
  if (problem) return html`<p class="quiet">${problem}</p>`;
  if (!rows) return html`<p class="quiet">Reading the rows…</p>`;
  const { runs, left_out: leftOut } = rows;
  let slabs = 1;
  for (const drive of pool.drives) slabs = Math.max(slabs, drive.usable_bytes / pool.slab_bytes);
  for (const run of runs) for (const column of run.columns) slabs = Math.max(slabs, column.first_slab + run.rows);
  const summary = inWords(runs);
  return html`<div class="map" role="img" aria-label=${summary}>
    ${bySlot(pool.drives).map((drive) => html`<div key=${drive.id} class="map-row" aria-hidden="true">
      <span class="map-name">${drive.path.split('/').at(-1)}</span>
      <svg viewBox="0 0 ${slabs} 10" preserveAspectRatio="none">
        <rect class="free" x="0" y="0" width=${Math.max(1, drive.usable_bytes / pool.slab_bytes)} height="10" />
        ${runs.flatMap((/** @type {any} */ run, /** @type {number} */ index) => run.columns
          .filter((/** @type {any} */ column) => column.drive === drive.id)
          .map((/** @type {any} */ column) => html`<g key="${index} ${column.first_slab}">
            <title>volume ${run.volume}: ${counted(run.rows, 'row')} (${size(run.rows * pool.slab_bytes)} on this drive), column ${column.state}</title>
            <rect class=${colour(run)} x=${column.first_slab} y="0" width=${run.rows} height="10" />
            ${column.state !== 'active' && html`<rect class="hole" x=${column.first_slab} y="3.500" width=${run.rows} height="3" />`}
          </g>`))}
      </svg></div>`)}
  </div>
  <p class="quiet">${summary}${leftOut ? `; ${counted(leftOut, 'further run')} not drawn` : ''}</p>
  <ul class="legend" aria-hidden="true">${LEGEND.map(([kind, text]) => html`<li key=${kind}><i class=${kind}></i>${text}</li>`)}</ul>`;
}
