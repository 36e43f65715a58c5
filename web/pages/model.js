// Predictions for drives that need not be here: one configuration in three states with what limits
// it, and a sweep over numbers of drives.

import { html, useEffect, useState } from '../lib/html.js';
import { may, post } from '../lib/api.js';
import { Command, Failure, Fields, initial } from '../lib/dialog.js';
import { LAYOUT_OPTIONS } from '../lib/actions.js';
import { duration, latency, megabytes, short, size } from '../lib/units.js';
import { Chart } from '../parts/chart.js';

const STATES = ['normal', 'degraded', 'rebuilding'];
const COLOURS = ['--read', '--write', '--good', '--bad', '--muted', '--accent'];

/** @type {[string, string][]} */
const PATTERNS = [['seq-read', 'sequential reads'], ['seq-write', 'sequential writes'], ['rand-read', 'random reads'], ['rand-write', 'random writes'], ['mixed', 'mixed']];

/** @param {any[]} drives of the catalogue @returns {import('../lib/dialog.js').Field[]} */
const fields = (drives) => [
  { name: 'drive', kind: 'select', label: 'Drive', value: drives[0]?.name, options: drives.map((drive) => /** @type {[string, string]} */ ([drive.name, `${drive.title} (${size(drive.capacity_bytes)})`])) },
  { name: 'count', kind: 'number', label: 'Number of drives', value: '4' },
  { name: 'layout', kind: 'select', label: 'Layout', value: 'raid5', options: LAYOUT_OPTIONS },
  { name: 'groups', kind: 'number', label: 'Groups', value: '', shown: ({ layout }) => /^raid[56]0$/.test(layout) },
  { name: 'interleave', label: 'Interleave (empty: as fits the drives)' },
  { name: 'pattern', kind: 'select', label: 'Load', value: 'mixed', options: PATTERNS },
  { name: 'block', label: 'Request size (empty: as fits the load)' },
  { name: 'depth', kind: 'number', label: 'Outstanding requests', value: '32' },
  { name: 'link', kind: 'select', label: 'Link to the clients', value: '', options: [['', 'this host'], ['1gbe', '1gbe'], ['2.5gbe', '2.5gbe'], ['10gbe', '10gbe'], ['25gbe', '25gbe']] },
];

/** Options of `model predict`. @param {Record<string, any>} values */
function options(values) {
  /** @type {Record<string, string>} */
  const found = { drives: `${values.count}x${values.drive}`, layout: values.layout, pattern: values.pattern };
  for (const name of ['groups', 'interleave', 'block', 'depth', 'link']) if (values[name]) found[name] = String(values[name]);
  return found;
}

const inWords = (/** @type {Record<string, string>} */ given) => Object.entries(given).flatMap(([name, value]) => [`--${name}`, value]);

function Prediction({ states }) {
  const row = (/** @type {string} */ name, /** @type {(one: any) => any} */ of) => html`<tr><th scope="row">${name}</th>${states.map((/** @type {any} */ one) =>
    html`<td key=${one.state} class="number">${one.problem ? '–' : of(one)}</td>`)}</tr>`;
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Table of predictions"><table class="proposals"><caption>Prediction</caption>
    <thead><tr><td></td>${states.map((/** @type {any} */ one) => html`<th key=${one.state} scope="col">${one.state}</th>`)}</tr></thead>
    <tbody>
      ${row('throughput', (one) => megabytes(one.mb_per_s))}
      ${row('requests', (one) => `${short(one.iops)}/s`)}
      ${row('mean latency', (one) => latency(one.latency_us.mean))}
      ${row('99 % within', (one) => latency(one.latency_us.p99))}
      ${row('limited by', (one) => html`<b>${one.bottleneck}</b>`)}
      ${row('drives busy', (one) => `${Math.round(one.drive_utilisation * 100)} %`)}
      ${row('processor busy', (one) => `${Math.round(one.processor_utilisation * 100)} %`)}
      ${row('rebuild takes', (one) => (one.rebuild_seconds === null ? '–' : duration(one.rebuild_seconds)))}
      ${row('expected error', (one) => `${Math.round(one.expected_error_percent)} %`)}
    </tbody></table></div>
    ${states.filter((/** @type {any} */ one) => one.problem).map((/** @type {any} */ one) => html`<p key=${one.state} class="quiet">${one.state}: ${one.problem}</p>`)}`;
}

function Sweep({ points }) {
  const layouts = [...new Set(points.map((/** @type {any} */ point) => point.layout))];
  const counts = [...new Set(points.map((/** @type {any} */ point) => point.drives))];
  const at = (/** @type {string} */ layout, /** @type {number} */ drives) => points.find((/** @type {any} */ point) => point.layout === layout && point.drives === drives);
  const series = layouts.map((label, index) => ({ label, color: COLOURS[index % COLOURS.length] }));
  const data = [counts, ...layouts.map((layout) => counts.map((drives) => at(layout, drives)?.mb_per_s ?? null))];
  const last = counts.at(-1) ?? 0;
  const summary = layouts.map((layout) => `${layout} ${megabytes(at(layout, last)?.mb_per_s ?? 0)} with ${last} drives`).join(', ');
  return html`<${Chart} label="Throughput over the number of drives" data=${data} series=${series} format=${(/** @type {number} */ value) => `${short(value)} MB/s`} height=${240} summary=${summary} x="number" xFormat=${String} />
    <div class="scroll" tabindex="0" role="region" aria-label="Table of the sweep"><table class="even"><caption>MB/s, and what limits it</caption>
      <thead><tr><th scope="col">Layout</th>${counts.map((count) => html`<th key=${count} scope="col">${count} drives</th>`)}</tr></thead>
      <tbody>${layouts.map((layout) => html`<tr key=${layout}><th scope="row">${layout}</th>${counts.map((count) => {
        const point = at(layout, count);
        return html`<td key=${count}>${point?.mb_per_s === null || !point ? '–' : short(point.mb_per_s)}<span class="sub">${point?.bottleneck}</span></td>`;
      })}</tr>`)}</tbody></table></div>`;
}

export function Model() {
  const [drives, setDrives] = useState(/** @type {any[]|null} */ (null));
  const [values, setValues] = useState(/** @type {Record<string, any>} */ ({}));
  const [states, setStates] = useState(/** @type {any[]|null} */ (null));
  const [points, setPoints] = useState(/** @type {any[]|null} */ (null));
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    if (!may('operate')) return;
    post('/console/tools/model-catalogue', {}).then(({ drives: all }) => {
      setDrives(all);
      setValues(initial(fields(all)));
    }, setProblem);
  }, []);
  const doing = async (/** @type {() => Promise<void>} */ work) => {
    setBusy(true);
    setProblem(null);
    await work().catch(setProblem);
    setBusy(false);
  };
  const given = options(values);
  const sweep = {
    drive: values.drive ?? '', drives: '3,4,6,8,12', layouts: 'raid0,raid5,raid6,raid10', depths: String(values.depth || 32),
    'read-shares': { 'seq-read': '1', 'rand-read': '1', 'seq-write': '0', 'rand-write': '0', mixed: '0.5' }[/** @type {string} */ (values.pattern)] ?? '0.5',
    'random-shares': /^seq/.test(values.pattern ?? '') ? '0' : '1', blocks: values.block || (/^seq/.test(values.pattern ?? '') ? '1M' : '4K'),
    ...(values.link ? { link: values.link } : {}),
  };
  const predict = () => doing(async () => {
    const found = [];
    for (const state of STATES) {
      try {
        found.push({ ...(await post('/console/tools/model-predict', { options: { ...given, state } })), state });
      } catch (failure) {
        if (state === 'normal') throw failure;
        // Without redundancy there is no such state.
        found.push({ state, problem: /** @type {Error} */ (failure).message });
      }
    }
    setStates(found);
  });
  return html`<main id="main" tabindex="-1">
    <div class="title"><h1>Model</h1></div>
    ${!may('operate') && html`<p class="quiet">Predictions need the role operate.</p>`}
    ${drives && html`<section class="card" aria-labelledby="model-what"><header><h2 id="model-what">Drives and load</h2></header>
      <form onSubmit=${(/** @type {Event} */ event) => { event.preventDefault(); predict(); }}>
        <div class="grid"><${Fields} fields=${fields(drives)} values=${values} prefix="model" set=${(/** @type {string} */ name, /** @type {any} */ value) => setValues((/** @type {any} */ before) => ({ ...before, [name]: value }))} /></div>
        <${Command} words=${['model', 'predict', ...inWords(given)]} />
        <${Command} words=${['model', 'sweep', ...inWords(sweep)]} />
        <div class="buttons"><button class="primary" disabled=${busy} aria-busy=${busy}>Predict</button>
          <button type="button" disabled=${busy} onClick=${() => doing(async () => setPoints((await post('/console/tools/model-sweep', { options: sweep })).points))}>Sweep</button></div>
      </form></section>`}
    <${Failure} problem=${problem} />
    ${states && html`<section class="card" aria-labelledby="model-one"><header><h2 id="model-one">Three states</h2></header><${Prediction} states=${states} /></section>`}
    ${points && html`<section class="card" aria-labelledby="model-sweep"><header><h2 id="model-sweep">Sweep</h2></header><${Sweep} points=${points} /></section>`}
  </main>`;
}
