// Small parts that many pages share: states, meters, the next action.

import { html } from '../lib/html.js';
import { may } from '../lib/api.js';
import { nextAction } from '../lib/actions.js';
import { percent } from '../lib/units.js';
import { Command } from '../lib/dialog.js';

const GOOD = ['online', 'active', 'passed', 'mounted'];
const BAD = ['failed', 'missing', 'away'];
const NAMES = { 'catching-up': 'catching up' };

/** @param {string} state @returns {'good'|'bad'|'warn'} */
export function tone(state) {
  if (GOOD.includes(state)) return 'good';
  return BAD.includes(state) ? 'bad' : 'warn';
}

const SIGNS = { good: '●', warn: '▲', bad: '■' };

/** A state: word, colour and shape. @param {{ state: string }} props */
export function State({ state }) {
  const kind = tone(state);
  const word = NAMES[/** @type {keyof typeof NAMES} */ (state)] ?? state;
  return html`<span class="state ${kind}"><span class="sign" aria-hidden="true">${SIGNS[kind]}</span> ${word}</span>`;
}

/** A path that breaks after its slashes first. @param {{ of: string }} props */
export function Path({ of }) {
  const parts = of.split(/(?<=\/)/);
  return html`<span class="path">${parts.map((part, index) => html`${index > 0 && html`<wbr />`}${part}`)}</span>`;
}

/** A share as a bar with text. @param {{ part: number, all: number, label: string, warnAt?: number }} props */
export function Meter({ part, all, label, warnAt = 101 }) {
  const value = percent(part, all);
  return html`<div class="meter ${value >= warnAt ? 'warn' : ''}" role="img" aria-label="${label}: ${value.toFixed(0)} %">
    <div style=${{ width: `${value}%` }}></div>
  </div>`;
}

/** The worst of a pool's volumes: how many more drives may be lost. @param {any} pool @returns {string} */
export function redundancyInWords(pool) {
  if (!pool.volumes.length) return 'no volumes: nothing can be lost';
  const failed = pool.volumes.filter((/** @type {any} */ volume) => volume.state === 'failed');
  if (failed.length) return `not readable: ${failed.map((/** @type {any} */ volume) => volume.name).join(', ')}`;
  const least = Math.min(...pool.volumes.map((/** @type {any} */ volume) => volume.redundancy_left));
  const at = pool.volumes.filter((/** @type {any} */ volume) => volume.redundancy_left === least);
  const names = at.map((/** @type {any} */ volume) => volume.name).join(', ');
  const others = at.length < pool.volumes.length ? ` (${names})` : '';
  if (least === 0) return `no further drive may be lost${others}`;
  return `${least === 1 ? 'one more drive' : `${least} more drives`} may be lost${others}`;
}

/** The next action, as a button or as words. @param {{ pool: any }} props */
export function NextAction({ pool }) {
  if (!pool.action) return null;
  const action = nextAction(pool);
  if (action && may(action.role)) return html`<button class="primary" onClick=${action.run}>${action.text}</button>`;
  if (pool.action.startsWith('stripewise ')) return html`<${Command} words=${pool.action.split(/\s+/).slice(1)} />`;
  return html`<p class="next">${pool.action}</p>`;
}
