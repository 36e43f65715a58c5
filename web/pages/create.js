// A new pool in four steps on one page: drives, work and what matters, the advisor's proposals side by
// side, and the creation of the pool with its first volume.

import { html, useState } from '../lib/html.js';
import { post, poolPath } from '../lib/api.js';
import { Command, Failure, Fields, initial, notify } from '../lib/dialog.js';
import { go, to } from '../lib/router.js';
import { LAYOUT_OPTIONS, bytes, volumeWords } from '../lib/actions.js';
import { chance, counted, duration, megabytes, size } from '../lib/units.js';
import { DrivesField } from '../parts/picker.js';

/** @type {import('../lib/dialog.js').Field[]} */
const NEED = [
  { name: 'workload', kind: 'select', label: 'Work', value: 'mixed', options: [
    ['mixed', 'mixed: many small requests, half of them reads'], ['sequential', 'sequential: long reads and writes'], ['random', 'random: small requests at random places'],
    ['backup', 'backup: written once, read seldom'], ['archive', 'archive: kept for long'], ['media', 'media: large files, read often']] },
  { name: 'capacity', label: 'Capacity needed (empty: more is better)', help: 'such as 8TB' },
  { name: 'risk', label: 'Accepted probability of data loss per year, percent', value: '0.1' },
  { name: 'link', kind: 'select', label: 'Link to the clients', value: '', options: [
    ['', 'this host'], ...['1gbe', '2.5gbe', '5gbe', '10gbe', '25gbe', '40gbe', '100gbe'].map((name) => /** @type {[string, string]} */ ([name, name]))] },
  { name: 'spares', kind: 'number', label: 'Drives to keep as spares', value: '0' },
];

/** @type {import('../lib/dialog.js').Field[]} */
const MAKE = [
  { name: 'pool', label: 'Name of the pool', required: true },
  { name: 'name', label: 'Name of the first volume', value: 'data', required: true },
  { name: 'layout', kind: 'select', label: 'Layout', value: 'raid5', options: LAYOUT_OPTIONS },
  { name: 'columns', kind: 'number', label: 'Columns (empty: as fits the drives)' },
  { name: 'groups', kind: 'number', label: 'Groups', shown: ({ layout }) => /^raid[56]0$/.test(layout) },
  { name: 'interleave', label: 'Interleave (empty: as fits the drives)' },
  { name: 'size', label: 'Size, such as 500GiB (empty: all free space)' },
  { name: 'thin', kind: 'check', label: 'Thin: allocate space only when it is written' },
];

function Rates({ rates, of }) {
  return html`<td class="number">${megabytes(rates.workload)}${of && rates !== of && html`<span class="sub">${Math.round((rates.workload * 100) / of.workload)} % of normal</span>`}</td>`;
}

/** The advisor's proposals, side by side. */
function Proposals({ advice, chosen, choose }) {
  const choices = advice.choices.slice(0, 6);
  const row = (/** @type {string} */ name, /** @type {(choice: any) => any} */ cell) => html`<tr><th scope="row">${name}</th>${choices.map((/** @type {any} */ choice) => cell(choice))}</tr>`;
  const text = (/** @type {(choice: any) => any} */ of) => (/** @type {any} */ choice) => html`<td class="number" key=${choice.rank}>${of(choice)}</td>`;
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Table of proposals"><table class="proposals">
    <caption>Predicted for this work; best first</caption>
    <thead><tr><td></td>${choices.map((/** @type {any} */ choice) => html`<th key=${choice.rank} scope="col" class=${choice.rank === chosen ? 'chosen' : ''}>
      <span class="rank">${choice.rank}</span> ${choice.layout}<span class="sub">${choice.columns} columns${choice.groups > 1 ? `, ${choice.groups} groups` : ''}${choice.spares ? `, ${counted(choice.spares, 'spare')}` : ''}</span></th>`)}</tr></thead>
    <tbody>
      ${row('usable', text((choice) => size(choice.usable_bytes)))}
      ${row('normal', (choice) => html`<${Rates} key=${choice.rank} rates=${choice.normal} />`)}
      ${row('degraded', (choice) => html`<${Rates} key=${choice.rank} rates=${choice.degraded} of=${choice.normal} />`)}
      ${row('rebuilding', (choice) => html`<${Rates} key=${choice.rank} rates=${choice.rebuilding} of=${choice.normal} />`)}
      ${row('rebuild takes', text((choice) => (choice.rebuild_seconds === null ? 'no redundancy' : duration(choice.rebuild_seconds))))}
      ${row('data loss per year', text((choice) => chance(choice.loss_probability_per_year)))}
      ${row('limited by', text((choice) => choice.bottleneck))}
      <tr><td></td>${choices.map((/** @type {any} */ choice) => html`<td key=${choice.rank} class="number"><button type="button" class=${choice.rank === chosen ? 'primary' : ''} aria-pressed=${choice.rank === chosen} aria-label="Take proposal ${choice.rank}, ${choice.layout}" onClick=${() => choose(choice)}>${choice.rank === chosen ? 'Taken' : 'Take'}</button></td>`)}</tr>
    </tbody></table></div>
    <ul class="reasons">${choices.map((/** @type {any} */ choice) => html`<li key=${choice.rank}><b>${choice.rank}</b> ${choice.reason}${choice.dominated_by ? `; proposal ${choice.dominated_by} is as good or better in every respect` : ''}</li>`)}</ul>
    ${advice.choices[0] && html`<p class="quiet">Half of such rates in published studies are within ${Math.round(advice.choices[0].rate_median_error_percent)} % of the prediction, nine of ten within ${Math.round(advice.choices[0].rate_p90_error_percent)} %.</p>`}
    ${advice.assumptions.length > 0 && html`<details><summary>Assumptions, and what would change the order</summary><ul class="reasons">${[...advice.assumptions, ...advice.sensitivity].map((/** @type {string} */ text) => html`<li key=${text}>${text}</li>`)}</ul></details>`}`;
}

function Step({ number, title, children }) {
  return html`<section class="card" aria-labelledby="step-${number}"><header><h2 id="step-${number}"><span class="rank">${number}</span> ${title}</h2></header>${children}</section>`;
}

export function Create() {
  const [drives, setDrives] = useState(/** @type {string[]} */ ([]));
  const [force, setForce] = useState(false);
  const [need, setNeed] = useState(() => initial(NEED));
  const [make, setMake] = useState(() => initial(MAKE));
  const [advice, setAdvice] = useState(/** @type {any} */ (null));
  const [chosen, setChosen] = useState(0);
  const [busy, setBusy] = useState('');
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const set = (/** @type {(update: any) => void} */ into) => (/** @type {string} */ name, /** @type {any} */ value) =>
    into((/** @type {any} */ before) => ({ ...before, [name]: value }));
  const spares = Math.max(0, Math.min(Number(need.spares) || 0, drives.length));
  const data = drives.slice(0, drives.length - spares);
  const kept = drives.slice(drives.length - spares);
  const doing = async (/** @type {string} */ what, /** @type {() => Promise<void>} */ work) => {
    setBusy(what);
    setProblem(null);
    try {
      await work();
    } catch (failure) {
      setProblem({ at: what, failure });
    }
    setBusy('');
  };
  const options = {
    drives: drives.join(','), workload: need.workload, risk: need.risk || '0.1', spares: String(spares),
    ...(need.capacity ? { capacity: need.capacity } : {}), ...(need.link ? { link: need.link } : {}),
  };
  const advise = () => doing('advise', async () => {
    setAdvice(await post('/console/tools/advise', { options }));
    setChosen(0);
  });
  const choose = (/** @type {any} */ choice) => {
    setChosen(choice.rank);
    const interleave = choice.interleave_bytes && choice.interleave_bytes % 1024 === 0 ? `${choice.interleave_bytes / 1024}KiB` : '';
    setMake((/** @type {any} */ before) => ({ ...before, layout: choice.layout, columns: String(choice.columns), groups: choice.groups > 1 ? String(choice.groups) : '', interleave }));
  };
  const poolWords = ['pool', 'create', make.pool || 'POOL', ...data, ...kept.flatMap((path) => ['--spare', path]), force && '--force'];
  const create = (/** @type {Event} */ event) => {
    event.preventDefault();
    doing('create', async () => {
      const isThere = await post('/api/v1/pools', { name: make.pool, drives: data, spares: kept, force }).then(() => true);
      if (isThere && make.name) {
        try {
          await post(`${poolPath(make.pool)}/volumes`, {
            name: make.name, layout: make.layout, thin: make.thin,
            ...(make.columns ? { columns: Number(make.columns) } : {}), ...(make.groups ? { groups: Number(make.groups) } : {}),
            ...(make.interleave ? { interleave_bytes: bytes(make.interleave) } : {}), ...(make.size ? { size_bytes: bytes(make.size) } : {}),
          });
        } catch (failure) {
          notify(`Pool ${make.pool} is created, its volume is not: ${/** @type {Error} */ (failure).message}`, true);
          go('pool', make.pool);
          return;
        }
      }
      notify(`Pool ${make.pool} is created.`);
      go('pool', make.pool);
    });
  };
  const failure = (/** @type {string} */ at) => html`<${Failure} problem=${problem?.at === at ? problem.failure : null} />`;
  return html`<main id="main" tabindex="-1">
    <p class="crumbs"><a href=${to()}>Pools</a></p>
    <div class="title"><h1>Create a pool</h1></div>
    <${Step} number="1" title="Drives">
      <${DrivesField} value=${drives} set=${setDrives} id="create-drives" values=${{ force }} />
      <div class="field check"><label for="create-force">Overwrite drives that hold data; everything on them is lost</label>
        <input id="create-force" type="checkbox" checked=${force} onChange=${(/** @type {any} */ event) => setForce(event.target.checked)} /></div>
      <p class="quiet" role="status">${counted(drives.length, 'drive')} chosen</p>
    <//>
    <${Step} number="2" title="Work, and what matters">
      <form onSubmit=${(/** @type {Event} */ event) => { event.preventDefault(); advise(); }}>
        <div class="grid"><${Fields} fields=${NEED} values=${need} set=${set(setNeed)} prefix="need" /></div>
        ${failure('advise')}
        <${Command} words=${['advise', ...Object.entries(options).flatMap(([name, value]) => [`--${name}`, value])]} />
        <div class="buttons"><button class="primary" disabled=${!drives.length || busy !== ''} aria-busy=${busy === 'advise'}>${busy === 'advise' ? 'Predicting…' : 'Show proposals'}</button></div>
      </form>
    <//>
    <${Step} number="3" title="Proposals">
      ${advice ? html`<${Proposals} advice=${advice} chosen=${chosen} choose=${choose} />` : html`<p class="quiet">The advisor predicts the rates, the capacity and the risk of each layout for the chosen drives. A layout can also be chosen without it, below.</p>`}
    <//>
    <${Step} number="4" title="Create">
      <form onSubmit=${create} novalidate>
        <div class="grid"><${Fields} fields=${MAKE} values=${make} set=${set(setMake)} prefix="make" /></div>
        ${kept.length > 0 && html`<p class="quiet">Kept as spares: ${kept.join(', ')}</p>`}
        ${failure('create')}
        <${Command} words=${[...poolWords, ...(make.name ? ['&&', 'stripewise', ...volumeWords(make.pool || 'POOL', make).filter(Boolean)] : [])]} />
        <div class="buttons"><button class="primary" disabled=${!data.length || busy !== ''} aria-busy=${busy === 'create'}>Create the pool</button></div>
      </form>
    <//>
  </main>`;
}
