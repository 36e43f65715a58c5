// All pools: state, what can still be lost, the next action, jobs, space, load.

import { html } from '../lib/html.js';
import { may } from '../lib/api.js';
import { pools } from '../lib/live.js';
import { to } from '../lib/router.js';
import * as actions from '../lib/actions.js';
import { counted, percent, size } from '../lib/units.js';
import { AlertChannels } from '../parts/access.js';
import { Jobs } from '../parts/jobs.js';
import { Hour, Now } from '../parts/load.js';
import { Meter, NextAction, State, redundancyInWords } from '../parts/state.js';

function Space({ pool }) {
  return html`<div class="fact"><dt>Space</dt><dd>
    <${Meter} part=${pool.allocated_bytes} all=${pool.capacity_bytes} label="space in use" warnAt=${pool.space_warning_percent || 101} />
    ${size(pool.allocated_bytes)} of ${size(pool.capacity_bytes)} allocated (${percent(pool.allocated_bytes, pool.capacity_bytes).toFixed(0)} %)
    ${pool.provisioned_bytes > pool.capacity_bytes && html`<br /><b class="warn-text">overcommitted: thin volumes can grow to ${size(pool.provisioned_bytes)}</b>`}
  </dd></div>`;
}

function Card({ pool }) {
  const out = pool.drives.filter((/** @type {any} */ drive) => ['missing', 'failed', 'offline', 'stale', 'behind', 'unknown'].includes(drive.state));
  return html`<section class="card ${pool.state}" aria-labelledby="pool-${pool.name}">
    <header>
      <h2 id="pool-${pool.name}"><a href=${to('pool', pool.name)}>${pool.name}</a></h2>
      <${State} state=${pool.state} />
      <span class="quiet">${counted(pool.drives.length, 'drive')}${out.length ? `, ${out.length} out of service` : ''} · ${counted(pool.volumes.length, 'volume')}</span>
    </header>
    <div class="card-body">
      <div class="facts">
        <p class="condition">${pool.condition}</p>
        <${NextAction} pool=${pool} />
        <dl>
          <div class="fact"><dt>Redundancy</dt><dd>${redundancyInWords(pool)}</dd></div>
          <${Space} pool=${pool} />
          <div class="fact"><dt>Jobs</dt><dd><${Jobs} pool=${pool} /></dd></div>
        </dl>
      </div>
      <div class="load"><${Now} pool=${pool.name} /><${Hour} pool=${pool.name} height=${96} /></div>
    </div>
  </section>`;
}

export function Overview() {
  const all = [...(pools.value?.values() ?? [])];
  return html`<main id="main" tabindex="-1">
    <div class="title"><h1>Pools</h1>
      <div class="buttons">
        ${may('admin') && html`<a class="button primary" href=${to('create')}>Create a pool</a>`}
        ${may('admin') && html`<button onClick=${actions.importPools}>Import</button>`}
      </div></div>
    ${pools.value === null && html`<p class="quiet" role="status">Reading the pools…</p>`}
    ${pools.value !== null && !all.length && html`<section class="card"><p>There is no pool on this host yet.</p>
      <p class="quiet">Create one from free drives, or import the pools of drives that come from another host.</p></section>`}
    ${all.map((pool) => html`<${Card} key=${pool.name} pool=${pool} />`)}
    <section class="card" aria-labelledby="alerts"><header><h2 id="alerts">Alerts</h2>
      ${may('operate') && html`<div class="buttons"><button onClick=${actions.testAlerts}>Test alerts</button></div>`}</header><${AlertChannels} /></section>
  </main>`;
}
