// The drives of a pool, by slot. A drive that is gone keeps its row, with what to do.

import { html } from '../lib/html.js';
import { may } from '../lib/api.js';
import { loads, pools } from '../lib/live.js';
import { show } from '../lib/dialog.js';
import * as actions from '../lib/actions.js';
import { percent, short, size } from '../lib/units.js';
import { Meter, Path, State } from './state.js';

const ACTIVE = ['online', 'rebuilding', 'catching-up', 'retiring', 'replacing'];

/** Drives by slot, then by path; numbers in names count as numbers. @param {any[]} drives */
export function bySlot(drives) {
  const key = (/** @type {any} */ drive) => `${drive.slot ?? '\uffff'} ${drive.path}`;
  return [...drives].sort((a, b) => key(a).localeCompare(key(b), 'en', { numeric: true }));
}

/** The next step for a drive, in a sentence; empty if none. @param {any} drive @param {any[]} spares */
function advice(drive, spares) {
  switch (drive.state) {
    case 'missing': return spares.length ? 'Not found. Bring it back, or replace it; a spare is there.' : 'Not found. Bring it back, or replace it.';
    case 'failed': return 'Out of service after errors. Replace it.';
    case 'offline': return 'Out of service by command. Bring it online.';
    case 'stale': return 'Its contents are out of date. Bring it online to fill it again, or replace it.';
    case 'behind': return 'Present; it has to catch up.';
    case 'rebuilding': return 'Being filled.';
    case 'catching-up': return 'Changed regions are being copied to it.';
    case 'retiring': return 'Being evacuated; it leaves the pool when it is empty.';
    case 'replacing': return 'In use until its replacement holds all of its data.';
    default: return '';
  }
}

function Health({ drive }) {
  const hot = drive.temperature_c !== null && drive.temperature_limit_c !== null && drive.temperature_c >= drive.temperature_limit_c;
  const counters = drive.smart_counters.map((/** @type {any} */ counter) => `${counter.name} ${counter.value}`).join(', ');
  return html`<span title=${counters || undefined}>${drive.smart ? html`<${State} state=${drive.smart} />` : html`<span class="none">–</span>`}</span>
    ${drive.temperature_c === null ? '' : html` <span class=${hot ? 'hot' : ''}>${drive.temperature_c} °C</span>`}`;
}

function Errors({ drive }) {
  const cell = (/** @type {number} */ count, /** @type {string} */ kind) => html`<td class="number ${count ? 'wrong' : ''}" data-label=${kind}>${count}</td>`;
  return html`${cell(drive.read_errors, 'read errors')}${cell(drive.write_errors, 'write errors')}${cell(drive.checksum_errors, 'checksum errors')}`;
}

/** Everything about a drive, and what can be done to it. */
const details = (/** @type {any} */ pool, /** @type {any} */ drive) => () => show(`Drive ${drive.path}`, (/** @type {() => void} */ close) => {
  const now = pools.value?.get(pool.name)?.drives.find((/** @type {any} */ one) => one.id === drive.id) ?? drive;
  const isIn = ACTIVE.includes(now.state);
  const then = (/** @type {() => void} */ run) => () => {
    close();
    run();
  };
  const button = (/** @type {string} */ text, /** @type {() => void} */ run) => html`<button type="button" onClick=${then(run)}>${text}</button>`;
  const fact = (/** @type {string} */ name, /** @type {any} */ value) => html`<div class="fact"><dt>${name}</dt><dd>${value ?? '–'}</dd></div>`;
  return html`<dl>
      ${fact('State', html`<${State} state=${now.state} /> ${now.reason ?? advice(now, [])}`)}
      ${fact('Role', now.role)}
      ${fact('Identity', now.id)}
      ${fact('Slot', now.slot)}
      ${fact('Model', [now.model, now.firmware && `firmware ${now.firmware}`].filter(Boolean).join(', ') || null)}
      ${fact('Serial', now.serial)}
      ${fact('Size', `${size(now.capacity_bytes)}; ${size(now.allocated_bytes)} of ${size(now.usable_bytes)} allocated`)}
      ${fact('Errors', `${now.read_errors} read, ${now.write_errors} write, ${now.checksum_errors} checksum`)}
      ${fact('Health', now.smart && html`<${Health} drive=${now} />`)}
      ${fact('Counters', now.smart_counters.map((/** @type {any} */ counter) => `${counter.name} ${counter.value}`).join(', ') || null)}
    </dl>
    ${may('operate') && html`<div class="buttons">
      ${button('Locate', actions.locate(now))}
      ${now.read_errors + now.write_errors + now.checksum_errors > 0 && button('Clear errors', actions.clear(pool.name, now))}
      ${isIn ? button('Offline', actions.offline(pool.name, now)) : button('Online', actions.online(pool.name, now))}
      ${isIn && button('Retire', actions.retire(pool.name, now))}
      ${button('Remove', actions.remove(pool.name, now))}
      ${button('Replace', actions.replace(pool, now))}
    </div>`}`;
});

function Buttons({ pool, drive }) {
  const isIn = ACTIVE.includes(drive.state);
  const button = (/** @type {string} */ text, /** @type {() => void} */ run, kind = '') =>
    html`<button class="small ${kind}" onClick=${run} aria-label="${text} ${drive.path}">${text}</button>`;
  return html`<div class="row-buttons">
    ${may('operate') && ['offline', 'stale'].includes(drive.state) && button('Online', actions.online(pool.name, drive), 'primary')}
    ${may('operate') && button('Replace', actions.replace(pool, drive), isIn ? '' : 'primary')}
    ${button('Details', details(pool, drive))}
  </div>`;
}

/** @param {{ pool: any }} props */
export function Drives({ pool }) {
  const spares = pool.drives.filter((/** @type {any} */ drive) => drive.role === 'spare' && ACTIVE.includes(drive.state));
  const load = loads.value[pool.name]?.load.drives ?? [];
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Table of drives"><table class="drives">
    <caption class="hidden">Drives of pool ${pool.name}</caption>
    <thead><tr>
      <th scope="col">Slot</th><th scope="col">Drive</th><th scope="col">Role</th><th scope="col">State</th>
      <th scope="col" class="number" title="Failed reads">Read err.</th><th scope="col" class="number" title="Failed writes">Write err.</th><th scope="col" class="number" title="Blocks with wrong contents">Cksum err.</th>
      <th scope="col">Health</th><th scope="col">Used</th><th scope="col" class="number">Load</th><th scope="col"><span class="hidden">Actions</span></th>
    </tr></thead>
    <tbody>${bySlot(pool.drives).map((drive) => {
      const now = load.find((/** @type {any} */ one) => one.id === drive.id);
      const note = drive.reason || advice(drive, spares);
      return html`<tr key=${drive.id} class=${ACTIVE.includes(drive.state) ? '' : 'out'}>
        <td data-label="slot">${drive.slot ?? html`<span class="none">–</span>`}</td>
        <th scope="row"><${Path} of=${drive.path} />
          <span class="sub">${[drive.model, drive.serial && `serial ${drive.serial}`, size(drive.capacity_bytes)].filter(Boolean).join(' · ')}</span></th>
        <td data-label="role">${drive.role}</td>
        <td data-label="state"><${State} state=${drive.state} />${note && html`<span class="sub">${note}</span>`}</td>
        <${Errors} drive=${drive} />
        <td class="health" data-label="health"><${Health} drive=${drive} /></td>
        <td class="used" data-label="used"><${Meter} part=${drive.allocated_bytes} all=${drive.usable_bytes} label="used of ${drive.path}" />
          <span class="sub">${size(drive.allocated_bytes)} · ${percent(drive.allocated_bytes, drive.usable_bytes).toFixed(0)} %</span></td>
        <td class="number" data-label="load">${now ? html`${short(now.read_mb_per_s + now.write_mb_per_s)} MB/s<span class="sub">${now.busy_percent.toFixed(0)} % busy</span>` : '–'}</td>
        <td><${Buttons} pool=${pool} drive=${drive} /></td>
      </tr>`;
    })}</tbody>
  </table></div>`;
}
