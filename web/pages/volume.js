// One volume: its layout drawn, where it lies, load, heat, clients.

import { html, useEffect, useState } from '../lib/html.js';
import { get, may, part } from '../lib/api.js';
import { useDocument } from '../lib/document.js';
import { loads, pools } from '../lib/live.js';
import { to } from '../lib/router.js';
import * as actions from '../lib/actions.js';
import { counted, latency, megabytes, percent, short, size } from '../lib/units.js';
import { Exports } from '../parts/access.js';
import { Meter, State } from '../parts/state.js';
import { VolumeButtons, layoutInWords } from '../parts/volumes.js';

const USE_MS = 2000;

function Layout({ volume }) {
  const query = new URLSearchParams({ layout: volume.layout, columns: volume.columns, groups: volume.groups, rotation_rows: volume.rotation_rows });
  const drawn = useDocument(`/console/layout?${query}`);
  if (!drawn) return html`<p class="quiet">Drawing…</p>`;
  const names = Array.from({ length: volume.columns }, (_, index) => index + 1);
  return html`<p class="quiet">The first strips of ${size(volume.interleave_bytes)}, by column${drawn.each > 1 ? `; each row stands for ${drawn.each}, after which parity rotates` : ''}</p>
    <div class="scroll" tabindex="0" role="region" aria-label="Strips by column"><table class="strips">
    <caption class="hidden">Strips by column</caption>
    <thead><tr>${names.map((number) => html`<th key=${number} scope="col">${number}</th>`)}</tr></thead>
    <tbody>${drawn.rows.map((/** @type {string[]} */ row, /** @type {number} */ index) => html`<tr key=${index}>
      ${row.map((text, column) => html`<td key=${column} class=${/[PQR]/.test(text) ? 'parity' : `data-${Number(text) % 2}`}>${text}</td>`)}</tr>`)}</tbody></table></div>
    <p class="quiet">Numbers are data strips in the volume's order${drawn.rows.flat().some((/** @type {string} */ text) => /[PQR]/.test(text)) ? '; P, Q and R are parity' : ''}${['raid1', 'raid10'].includes(volume.layout) ? '; equal numbers are copies' : ''}.</p>`;
}

function Where({ volume }) {
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Table of drives"><table class="plain"><caption class="hidden">Drives of the volume</caption>
    <thead><tr><th scope="col">Drive</th><th scope="col">Role</th><th scope="col">Share</th><th scope="col" class="number">Size</th><th scope="col" class="number">Not current</th></tr></thead>
    <tbody>${volume.drives.map((/** @type {any} */ drive) => html`<tr key=${drive.id}><th scope="row" class="path">${drive.path}</th><td>${drive.role}</td>
      <td><${State} state=${drive.state} /></td><td class="number">${size(drive.bytes)}</td><td class="number">${drive.lacking_bytes ? size(drive.lacking_bytes) : '–'}</td></tr>`)}</tbody></table></div>`;
}

function Load({ volume }) {
  const rows = (loads.value[volume.pool]?.load.volumes ?? []).filter((/** @type {any} */ one) => one.volume === volume.name);
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Table of requests"><table class="plain"><caption>Requests of the last second</caption>
    <thead><tr><th scope="col">Kind</th><th scope="col" class="number">Throughput</th><th scope="col" class="number">Requests</th><th scope="col" class="number">Mean</th><th scope="col" class="number">p50 ≤</th><th scope="col" class="number">p99 ≤</th><th scope="col" class="number">Failed</th></tr></thead>
    <tbody>${['read', 'write', 'flush', 'discard', 'write_zeroes'].map((kind) => {
      const one = rows.find((/** @type {any} */ row) => row.operation === kind);
      return html`<tr key=${kind}><th scope="row">${kind.replace('_', ' ')}</th><td class="number">${megabytes(one?.mb_per_s ?? 0)}</td><td class="number">${short(one?.requests_per_s ?? 0)}/s</td>
        <td class="number">${latency(one?.latency_us.mean)}</td><td class="number">${latency(one?.latency_us.p50_at_most)}</td><td class="number">${latency(one?.latency_us.p99_at_most)}</td><td class="number ${one?.failed ? 'wrong' : ''}">${one?.failed ?? 0}</td></tr>`;
    })}</tbody></table></div>`;
}

function Heat({ volume }) {
  const { tiers } = volume;
  const rows = tiers.fast_rows + tiers.data_rows + tiers.mixed_rows;
  const heat = tiers.fast_heat + tiers.data_heat;
  return html`<dl>
    <div class="fact"><dt>Hottest row</dt><dd>${heat > 0 ? `${percent(tiers.hottest_row_heat, heat).toFixed(1)} % of all use` : 'no use since the pool was opened'}</dd></div>
    ${tiers.fast_rows + tiers.mixed_rows > 0 && html`<div class="fact"><dt>On fast drives</dt><dd><${Meter} part=${tiers.fast_heat} all=${heat} label="use on fast drives" />
      ${tiers.fast_rows} of ${counted(rows, 'row')} (${size(tiers.fast_bytes)}), ${percent(tiers.fast_heat, heat).toFixed(0)} % of the use${tiers.moving_rows ? `; ${tiers.moving_rows} moving` : ''}</dd></div>`}
    ${tiers.note && html`<div class="fact"><dt>Tiering</dt><dd>${tiers.note}</dd></div>`}
  </dl>`;
}

/** @param {string[]} clients */
function clientList(clients) {
  return clients.length === 0 ? 'no client' : html`<ul class="plain-list">
    ${clients.map((client) => html`<li key=${client}>${client}</li>`)}</ul>`;
}

function Clients({ volume }) {
  const [use, setUse] = useState(/** @type {any} */ (null));
  useEffect(() => {
    const read = () => get(`/console/pools/${part(volume.pool)}/volumes/${part(volume.name)}/use`).then(setUse, () => {});
    read();
    const timer = setInterval(read, USE_MS);
    return () => clearInterval(timer);
  }, [volume.pool, volume.name]);
  if (!use) return html`<p class="quiet">Reading…</p>`;
  const whole = `${volume.pool}/${volume.name}`;
  const mounts = pools.value?.get(volume.pool)?.mounts.filter((/** @type {any} */ mount) => [volume.pool, whole].includes(mount.target)) ?? [];
  return html`<dl>
    <div class="fact"><dt>In flight</dt><dd>${counted(use.in_flight, 'request')}</dd></div>
    <div class="fact"><dt>NBD clients</dt><dd>${use.nbd_clients === null ? 'no NBD server: serve --nbd' : clientList(use.nbd_clients)}</dd></div>
    ${use.vhost_clients !== null && html`<div class="fact"><dt>Virtual machines</dt>
      <dd>${clientList(use.vhost_clients)}</dd></div>`}
    ${(use.nbd_clients !== null || use.vhost_clients !== null) && html`<div class="fact"><dt>Exports</dt>
      <dd><${Exports} pool=${volume.pool} volume=${volume.name} /></dd></div>`}
    <div class="fact"><dt>Mounts</dt><dd>${mounts.length === 0 ? 'none' : html`<ul class="plain-list">
      ${mounts.map((/** @type {any} */ mount) => html`<li key=${mount.folder}>${mount.folder} (${mount.file_system ?? 'as a file'}), ${mount.state}</li>`)}</ul>`}</dd></div>
    <div class="fact"><dt>Journal</dt><dd>${use.journal_size_bytes === null ? 'none: the layout needs none' : html`<${Meter} part=${use.journal_used_bytes} all=${use.journal_size_bytes} label="journal in use" />${size(use.journal_used_bytes)} of ${size(use.journal_size_bytes)}`}</dd></div>
  </dl>`;
}

function Card({ id, title, buttons, children }) {
  return html`<section class="card" aria-labelledby="volume-${id}"><header><h2 id="volume-${id}">${title}</h2>
    ${buttons && html`<div class="buttons">${buttons}</div>`}</header>${children}</section>`;
}

/** @param {{ pool: string, name: string }} props */
export function Volume({ pool, name }) {
  const volume = pools.value?.get(pool)?.volumes.find((/** @type {any} */ one) => one.name === name);
  const crumbs = html`<p class="crumbs"><a href=${to()}>Pools</a> / <a href=${to('pool', pool)}>${pool}</a></p>`;
  if (!volume) {
    return html`<main id="main" tabindex="-1">${crumbs}<h1>${pool}/${name}</h1>
      <p class="quiet" role="status">${pools.value === null ? 'Reading the volume…' : `There is no volume ${pool}/${name}.`}</p></main>`;
  }
  const options = [volume.thin ? 'thin' : 'fully allocated', volume.write_back ? 'write-back' : 'write-through', volume.checksums ? 'checksums' : 'no checksums', volume.pin !== 'none' && `pinned to ${volume.pin} drives`, volume.slices > 1 && `${volume.slices} slices`];
  return html`<main id="main" tabindex="-1">${crumbs}
    <div class="title"><h1>${pool}/${name}</h1><${State} state=${volume.state} /><${VolumeButtons} volume=${volume} /></div>
    <div class="summary card ${volume.state === 'rebuilding' ? 'degraded' : volume.state}"><dl>
      ${volume.failure && html`<div class="fact"><dt>Failure</dt><dd>${volume.failure}</dd></div>`}
      <div class="fact"><dt>Layout</dt><dd>${layoutInWords(volume)}; ${options.filter(Boolean).join(', ')}</dd></div>
      <div class="fact"><dt>Redundancy</dt><dd>${volume.redundancy_left === 0 ? 'no further drive may be lost' : `${counted(volume.redundancy_left, 'further drive')} may be lost`}</dd></div>
      <div class="fact"><dt>Size</dt><dd>${size(volume.capacity_bytes)}; ${volume.written_bytes === null ? 'written: unknown' : `${size(volume.written_bytes)} written`}; takes ${size(volume.allocated_bytes)} on its drives</dd></div>
      ${volume.conversion && html`<div class="fact"><dt>Conversion</dt><dd>${volume.conversion.is_cancelled ? 'reverting to' : 'from'} ${volume.conversion.from_layout} over ${volume.conversion.from_columns}: ${volume.conversion.percent.toFixed(1)} % ${volume.conversion.waits ?? ''}</dd></div>`}
      ${volume.lost_blocks > 0 && html`<div class="fact"><dt>Lost</dt><dd class="wrong">${volume.lost_blocks} blocks of 4 KiB: reading them is an error until they are rewritten</dd></div>`}
    </dl></div>
    <div class="halves">
      <${Card} id="layout" title="Layout"><${Layout} volume=${volume} /><//>
      <${Card} id="load" title="Load"><${Load} volume=${volume} /><//>
      <${Card} id="heat" title="Heat"><${Heat} volume=${volume} /><//>
      <${Card} id="clients" title="Clients" buttons=${may('admin') && html`<button onClick=${actions.mount(pools.value?.get(pool), name)}>Mount</button>`}><${Clients} volume=${volume} /><//>
    </div>
    <${Card} id="drives" title="Drives"><${Where} volume=${volume} /><//>
  </main>`;
}
