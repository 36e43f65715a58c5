// Ways to a pool's volumes: NBD exports, vhost-user sockets, and mounts that the daemon keeps; and
// the channels of alerts.

import { html } from '../lib/html.js';
import { may } from '../lib/api.js';
import { useDocument } from '../lib/document.js';
import * as actions from '../lib/actions.js';
import { State } from './state.js';

/** Address of an export for NBD clients. @param {string} place path of a socket, or address and port @param {string} name */
export function exportAddress(place, name) {
  return place.startsWith('/') ? `nbd+unix:///${name}?socket=${place}` : `nbd://${place}/${name}`;
}

/** @param {{ pool: any, volume?: string }} props */
export function Exports({ pool, volume }) {
  const service = useDocument('/console/service');
  if (!service) return null;
  const name = `${pool}/${volume ?? 'VOL'}`;
  const exports = service.nbd.map((/** @type {string} */ place) => exportAddress(place, name));
  if (service.vhost_user) exports.push(`${service.vhost_user}/${name}`);
  const none = 'No NBD server: volumes are exported by serve --nbd unix:PATH or tcp:PORT.';
  if (!exports.length) return html`<p class="quiet">${none}</p>`;
  return html`<ul class="plain-list">${exports.map((/** @type {string} */ address) =>
    html`<li key=${address}><code>${address}</code></li>`)}</ul>`;
}

/** @param {{ pool: any }} props */
export function Mounts({ pool }) {
  if (!pool.mounts.length) return html`<p class="quiet">Nothing of the pool is mounted by the daemon.</p>`;
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Table of mounts"><table class="plain"><caption class="hidden">Mounts of pool ${pool.name}</caption>
    <thead><tr><th scope="col">What</th><th scope="col">Folder</th><th scope="col">File system</th><th scope="col">State</th>${may('admin') && html`<th scope="col"><span class="hidden">Actions</span></th>`}</tr></thead>
    <tbody>${pool.mounts.map((/** @type {any} */ mount) => html`<tr key=${mount.target}>
      <th scope="row">${mount.target}</th><td class="path">${mount.folder}</td><td>${mount.file_system ?? 'volumes as files'}</td>
      <td><${State} state=${mount.state} />${mount.why && html`<span class="sub">${mount.why}</span>`}</td>
      ${may('admin') && html`<td><button class="small" onClick=${actions.unmount(mount)} aria-label="Unmount ${mount.target}">Unmount</button></td>`}
    </tr>`)}</tbody></table></div>`;
}

const KINDS = { command: 'Command', mail: 'Mail', webhook: 'Web address' };

/** The channels of alerts, with a test. */
export function AlertChannels() {
  const service = useDocument('/console/service');
  if (!service) return html`<p class="quiet">Reading…</p>`;
  if (!service.alerts) return html`<p class="quiet">The role operate sees the channels.</p>`;
  if (!service.alerts.length) {
    return html`<p><b class="warn-text">No alert is sent:</b> the daemon has no channel for alerts, so a failed drive is shown here only.</p>
      <p class="quiet">Start it with --alert-command COMMAND, --alert-mail ADDRESS or --alert-webhook URL.</p>`;
  }
  return html`<ul class="plain-list">${service.alerts.map((/** @type {any} */ one) => html`<li key="${one.kind} ${one.to}">
    ${KINDS[/** @type {keyof typeof KINDS} */ (one.kind)]}: <code>${one.to}</code></li>`)}</ul>`;
}
