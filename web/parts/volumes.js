// The volumes of a pool.

import { html } from '../lib/html.js';
import { may } from '../lib/api.js';
import { loads } from '../lib/live.js';
import * as actions from '../lib/actions.js';
import { to } from '../lib/router.js';
import { megabytes, size } from '../lib/units.js';
import { State } from './state.js';

/** @param {any} volume @returns {string} */
export function layoutInWords(volume) {
  const groups = volume.groups > 1 ? ` in ${volume.groups} groups` : '';
  return `${volume.layout} over ${volume.columns}${groups}, interleave ${size(volume.interleave_bytes)}`;
}

/** Throughput of a volume in the last second. @param {any} volume */
export function rateOf(volume) {
  const all = loads.value[volume.pool]?.load.volumes ?? [];
  return all.filter((/** @type {any} */ one) => one.volume === volume.name)
    .reduce((/** @type {number} */ sum, /** @type {any} */ one) => sum + one.mb_per_s, 0);
}

/** Buttons for what can be done to a volume. @param {{ volume: any }} props */
export function VolumeButtons({ volume }) {
  if (!may('operate')) return null;
  const button = (/** @type {string} */ text, /** @type {() => void} */ run, kind = '') =>
    html`<button class="small ${kind}" onClick=${run} aria-label="${text} ${volume.name}">${text}</button>`;
  return html`<div class="row-buttons">
    ${button('Resize', actions.resize(volume))}
    ${volume.conversion && !volume.conversion.is_cancelled ? button('Cancel conversion', actions.cancelConversion(volume)) : button('Convert', actions.convert(volume))}
    ${button('Pin', actions.pin(volume))}
    ${may('admin') && button('Delete', actions.deleteVolume(volume), 'danger')}
  </div>`;
}

/** @param {{ pool: any }} props */
export function Volumes({ pool }) {
  if (!pool.volumes.length) return html`<p class="quiet">The pool has no volumes yet.</p>`;
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Table of volumes"><table class="plain">
    <caption class="hidden">Volumes of pool ${pool.name}</caption>
    <thead><tr><th scope="col">Volume</th><th scope="col">State</th><th scope="col">Layout</th><th scope="col" class="number">Size</th>
      <th scope="col" class="number">Written</th><th scope="col">May lose</th><th scope="col" class="number">Load</th>${may('operate') && html`<th scope="col"><span class="hidden">Actions</span></th>`}</tr></thead>
    <tbody>${pool.volumes.map((/** @type {any} */ volume) => html`<tr key=${volume.id}>
      <th scope="row"><a href=${to('pool', pool.name, 'volume', volume.name)}>${volume.name}</a>${volume.thin && html` <span class="tag">thin</span>`}${volume.pin !== 'none' && html` <span class="tag">${volume.pin}</span>`}</th>
      <td><${State} state=${volume.state} />${(volume.failure || volume.lost_blocks > 0) && html`<span class="sub">${volume.failure ?? `${volume.lost_blocks} blocks of 4 KiB are lost`}</span>`}</td>
      <td>${layoutInWords(volume)}${volume.conversion && html`<span class="sub">converting from ${volume.conversion.from_layout}: ${volume.conversion.percent.toFixed(1)} %</span>`}</td>
      <td class="number">${size(volume.capacity_bytes)}</td>
      <td class="number">${volume.written_bytes === null ? '–' : size(volume.written_bytes)}</td>
      <td>${volume.redundancy_left === 0 ? html`<b class=${['raid0', 'single'].includes(volume.layout) ? '' : 'warn-text'}>no drive</b>` : volume.redundancy_left === 1 ? '1 more drive' : `${volume.redundancy_left} more drives`}</td>
      <td class="number">${megabytes(rateOf(volume))}</td>
      ${may('operate') && html`<td><${VolumeButtons} volume=${volume} /></td>`}
    </tr>`)}</tbody></table></div>`;
}
