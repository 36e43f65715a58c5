// Settings of a pool. The rebuild priority is a slider, beside what the model predicts of it.

import { html, useEffect, useState } from '../lib/html.js';
import { call, may, part, poolPath, post } from '../lib/api.js';
import { Command, Failure, notify } from '../lib/dialog.js';
import { duration, megabytes, size } from '../lib/units.js';

/** Prediction for a priority, between the two that the model computed around it. */
function at(/** @type {any[]} */ points, /** @type {number} */ percent, /** @type {string} */ key) {
  const sorted = [...points].sort((a, b) => a.percent - b.percent);
  const above = sorted.findIndex((point) => point.percent >= percent);
  if (above < 0) return sorted.at(-1)[key];
  if (above === 0 || sorted[above].percent === percent) return sorted[above][key];
  const [low, high] = [sorted[above - 1], sorted[above]];
  const share = (percent - low.percent) / (high.percent - low.percent);
  return low[key] + (high[key] - low[key]) * share;
}

function Prediction({ pool, percent }) {
  const [advice, setAdvice] = useState(/** @type {any} */ (null));
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const [busy, setBusy] = useState(false);
  const predict = async () => {
    setBusy(true);
    setProblem(null);
    try {
      setAdvice(await post('/console/tools/pool-advise', { words: [pool.name] }));
    } catch (failure) {
      setProblem(failure);
    }
    setBusy(false);
  };
  if (!advice) {
    return html`<div><button type="button" onClick=${predict} disabled=${busy || !may('operate')} aria-busy=${busy}>${busy ? 'Predicting…' : 'Predict the effect'}</button>
      <${Failure} problem=${problem} /></div>`;
  }
  const volumes = advice.volumes.filter((/** @type {any} */ volume) => volume.rebuild.by_priority.length);
  if (!volumes.length) return html`<p class="quiet">No volume has redundancy to rebuild.</p>`;
  return html`<table class="plain"><caption>Predicted at ${percent} %, under the load so far</caption>
    <thead><tr><th scope="col">volume</th><th scope="col">rebuild takes</th><th scope="col">clients keep at most</th></tr></thead>
    <tbody>${volumes.map((/** @type {any} */ volume) => html`<tr key=${volume.volume}><th scope="row">${volume.volume}</th>
      <td>${duration(at(volume.rebuild.by_priority, percent, 'seconds'))}</td>
      <td>${megabytes(at(volume.rebuild.by_priority, percent, 'clients_mb_per_s'))}</td></tr>`)}</tbody></table>`;
}

/** @type {[string, string, (pool: any) => string, string][]} key, label, value, help */
const OTHERS = [
  ['rebuild_latency', 'Delay that a rebuild may add to a request', (pool) => (pool.rebuild_latency_ms === null ? 'off' : `${pool.rebuild_latency_ms}ms`), 'such as 20ms, or off'],
  ['patrol_rate', 'Scrub rate per second', (pool) => (pool.patrol_bytes_per_s === null ? 'none' : size(pool.patrol_bytes_per_s).replace(' ', '')), 'such as 20MB, or none'],
  ['patrol_interval', 'Days between automatic scrubs', (pool) => (pool.patrol_interval_s === null ? 'none' : String(pool.patrol_interval_s / 86400)), 'or none'],
  ['space_warning', 'Space in use at which the status warns, percent', (pool) => String(pool.space_warning_percent), '1 to 100'],
  ['tier_rate', 'Rate of tiering per second', (pool) => (pool.tier_bytes_per_s === null ? 'off' : size(pool.tier_bytes_per_s).replace(' ', '')), 'such as 100MB, or off'],
];

function asSet(/** @type {any} */ pool) {
  /** @type {Record<string, string>} */
  const values = { rebuild_priority: String(pool.rebuild_priority_percent) };
  for (const [key, , value] of OTHERS) values[key] = value(pool);
  return values;
}

/** @param {{ pool: any }} props */
export function Settings({ pool }) {
  const now = asSet(pool);
  const [changes, setChanges] = useState(/** @type {Record<string, string>} */ ({}));
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  // A change by someone else shows at once in the fields that are not being edited here.
  useEffect(() => setChanges({}), [pool.name]);
  const value = (/** @type {string} */ key) => changes[key] ?? now[key];
  const set = (/** @type {string} */ key, /** @type {string} */ text) => setChanges((/** @type {any} */ before) => ({ ...before, [key]: text }));
  const changed = Object.entries(changes).filter(([key, text]) => text !== now[key]);
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    setProblem(null);
    try {
      const body = Object.fromEntries(changed.map(([key, text]) => [key, key === 'space_warning' ? Number(text) : text]));
      await call('PATCH', poolPath(pool.name), body);
      setChanges({});
      notify(`The settings of pool ${pool.name} are changed.`);
    } catch (failure) {
      setProblem(failure);
    }
  };
  const priority = Number(value('rebuild_priority'));
  const words = changed.map(([key, text]) => `${key.replaceAll('_', '-')}=${text}`);
  return html`<form class="settings" onSubmit=${submit}>
    <fieldset disabled=${!may('operate')}><legend class="hidden">Settings</legend>
      <div class="field range"><label for="set-priority">Rebuild priority: <output for="set-priority">${priority} %</output> of each drive's time under load</label>
        <input id="set-priority" type="range" min="1" max="100" value=${priority} onInput=${(/** @type {any} */ event) => set('rebuild_priority', event.target.value)} />
        <${Prediction} key=${part(pool.name)} pool=${pool} percent=${priority} /></div>
      <div class="grid">${OTHERS.map(([key, label, , help]) => html`<div key=${key} class="field"><label for="set-${key}">${label}</label>
        <input id="set-${key}" value=${value(key)} spellcheck=${false} aria-describedby="set-${key}-help" onInput=${(/** @type {any} */ event) => set(key, event.target.value)} />
        <p class="help" id="set-${key}-help">${help}</p></div>`)}</div>
      <${Failure} problem=${problem} />
      ${may('operate') && html`<${Command} words=${['pool', 'set', pool.name, ...(words.length ? words : ['SETTING=VALUE'])]} />
      <div class="buttons"><button class="primary" disabled=${!changed.length}>Change settings</button>
        <button type="button" disabled=${!changed.length} onClick=${() => setChanges({})}>Undo</button></div>`}
    </fieldset></form>`;
}
