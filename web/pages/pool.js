// One pool: drives, the map of its rows, volumes, jobs, events, settings.

import { html } from '../lib/html.js';
import { may } from '../lib/api.js';
import { pools } from '../lib/live.js';
import { to } from '../lib/router.js';
import * as actions from '../lib/actions.js';
import { moment, size } from '../lib/units.js';
import { Exports, Mounts } from '../parts/access.js';
import { Drives } from '../parts/drives.js';
import { Events } from '../parts/events.js';
import { Jobs } from '../parts/jobs.js';
import { Hour, Now } from '../parts/load.js';
import { RowMap } from '../parts/rows.js';
import { Settings } from '../parts/settings.js';
import { NextAction, State, redundancyInWords } from '../parts/state.js';
import { Volumes } from '../parts/volumes.js';

function Section({ id, title, buttons, children }) {
  return html`<section class="card" aria-labelledby="section-${id}"><header><h2 id="section-${id}">${title}</h2>
    ${buttons && html`<div class="buttons">${buttons}</div>`}</header>${children}</section>`;
}

/** The last scrub, in words. */
function scrubbed(/** @type {any} */ scrub) {
  if (!scrub) return 'never scrubbed';
  const found = [
    scrub.repaired_blocks && `${scrub.repaired_blocks} blocks repaired`,
    scrub.unattributed_blocks && `${scrub.unattributed_blocks} mismatches made consistent`,
    scrub.unreadable_strips && `${scrub.unreadable_strips} strips unreadable`,
    scrub.volumes_cut_short && `${scrub.volumes_cut_short} volumes cut short`,
  ].filter(Boolean).join(', ');
  return `${moment(scrub.ended_unix_ms)}: ${size(scrub.checked_bytes)} verified, ${found || 'no errors found'}`;
}

/** @param {{ name: string }} props */
export function Pool({ name }) {
  const pool = pools.value?.get(name);
  if (!pool) {
    return html`<main id="main" tabindex="-1"><p class="crumbs"><a href=${to()}>Pools</a></p>
      <h1>${name}</h1><p class="quiet" role="status">${pools.value === null ? 'Reading the pool…' : `There is no pool ${name} on this host.`}</p></main>`;
  }
  const has = (/** @type {string} */ kind) => pool.activity.some((/** @type {any} */ job) => job.kind === kind);
  return html`<main id="main" tabindex="-1">
    <p class="crumbs"><a href=${to()}>Pools</a></p>
    <div class="title"><h1>${pool.name}</h1><${State} state=${pool.state} />
      ${may('operate') && html`<div class="buttons">
        <button onClick=${actions.scrub(name)}>Scrub</button>
        ${has('rebalance') ? html`<button onClick=${actions.stopRebalance(name)}>Stop rebalance</button>` : html`<button onClick=${actions.rebalance(name)}>Rebalance</button>`}
        <button onClick=${actions.clear(name)}>Clear</button>
        ${may('admin') && html`<button onClick=${actions.rename(name)}>Rename</button>
          <button onClick=${actions.exportPool(name)}>Export</button>
          <button class="danger" onClick=${actions.destroy(pool)}>Destroy</button>`}
      </div>`}</div>
    <div class="summary card ${pool.state}">
      <p class="condition">${pool.condition}</p>
      <${NextAction} pool=${pool} />
      <dl class="facts">
        <div class="fact"><dt>Redundancy</dt><dd>${redundancyInWords(pool)}</dd></div>
        <div class="fact"><dt>Space</dt><dd>${size(pool.allocated_bytes)} of ${size(pool.capacity_bytes)} allocated, in slabs of ${size(pool.slab_bytes)}; metadata, bitmaps and journals take ${pool.overhead_percent.toFixed(2)} % of the drives</dd></div>
        <div class="fact"><dt>Last scrub</dt><dd>${scrubbed(pool.last_scrub)}</dd></div>
      </dl>
      ${pool.notices.length > 0 && html`<ul class="notes">${pool.notices.map((/** @type {string} */ text) => html`<li key=${text}>${text}</li>`)}</ul>`}
    </div>
    <${Section} id="drives" title="Drives" buttons=${may('operate') && html`<button onClick=${actions.addDrives(name)}>Add drives</button><button onClick=${actions.addDrives(name, 'spare')}>Add a spare</button>`}><${Drives} pool=${pool} /><//>
    <div class="two">
      <${Section} id="jobs" title="Jobs"><${Jobs} pool=${pool} /><//>
      <${Section} id="load" title="Load"><${Now} pool=${name} /><${Hour} pool=${name} /><//>
    </div>
    <${Section} id="volumes" title="Volumes" buttons=${may('operate') && html`<button onClick=${actions.createVolume(pool)}>Create a volume</button>`}><${Volumes} pool=${pool} /><//>
    <${Section} id="access" title="Exports and mounts" buttons=${may('admin') && html`<button onClick=${actions.mount(pool)}>Mount</button>`}><${Exports} pool=${name} /><${Mounts} pool=${pool} /><//>
    <${Section} id="map" title="Map of rows"><${RowMap} pool=${pool} /><//>
    <${Section} id="events" title="Events"><${Events} pool=${name} /><//>
    <${Section} id="settings" title="Settings"><${Settings} pool=${pool} /><//>
  </main>`;
}
