// The laboratory: runs with their figures, also while they are measured; comparison; reports; studies
// with the published figures beside the measured ones.

import { html, useEffect, useState } from '../lib/html.js';
import { call, get, may, part, post } from '../lib/api.js';
import { Command, Failure, ask } from '../lib/dialog.js';
import { latency, megabytes, moment, short, size } from '../lib/units.js';
import { Chart } from '../parts/chart.js';

const LOOK_MS = 1000;

const tool = (/** @type {string} */ name, /** @type {string[]} */ words = []) => post(`/console/tools/${name}`, { words });

/** @param {any} one a measurement @returns {number} MB/s: the mean of its runs so far */
const rate = (one) => one.mb_per_s ?? 0;

function Figures({ run }) {
  const all = run.measurements ?? [];
  const axis = all.map((/** @type {any} */ _, /** @type {number} */ index) => index + 1);
  const data = [axis, all.map(rate)];
  const summary = all.map((/** @type {any} */ one) => `${one.name} ${megabytes(rate(one))}`).join(', ') || 'no figure yet';
  return html`${all.length > 0 && html`<${Chart} label="Throughput of each figure" data=${data} series=${[{ label: 'MB/s', color: '--read' }]} format=${(/** @type {number} */ value) => `${short(value)} MB/s`} height=${160} summary=${summary} x="number" bars=${true} xFormat=${(/** @type {number} */ value) => (Number.isInteger(value) ? String(value) : '')} />`}
    <div class="scroll" tabindex="0" role="region" aria-label="Table of figures"><table class="plain"><caption>${run.profile} on ${run.target}</caption>
      <thead><tr><th scope="col">#</th><th scope="col">Figure</th><th scope="col" class="number">Block</th><th scope="col" class="number">Depth</th><th scope="col" class="number">Throughput</th><th scope="col" class="number">95 %</th><th scope="col" class="number">IOPS</th><th scope="col" class="number">Mean</th><th scope="col" class="number">p99</th></tr></thead>
      <tbody>${all.map((/** @type {any} */ one, /** @type {number} */ index) => html`<tr key=${index}><td>${index + 1}</td><th scope="row">${one.name}</th>
        <td class="number">${one.block_bytes ? size(one.block_bytes) : '–'}</td><td class="number">${one.queue_depth ?? '–'}</td>
        <td class="number">${megabytes(rate(one))}</td><td class="number">${one.ci95 ? `${short(one.ci95[0])} – ${short(one.ci95[1])}` : '–'}</td>
        <td class="number">${one.iops === null || one.iops === undefined ? '–' : short(one.iops)}</td><td class="number">${latency(one.latency_us?.mean)}</td><td class="number">${latency(one.latency_us?.p99)}</td></tr>`)}</tbody></table></div>`;
}

function Comparison({ document }) {
  const words = { better: 'better', worse: 'worse', cannot_tell: 'cannot tell' };
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Table of the comparison"><table class="plain"><caption>The second run relative to the first</caption>
    <thead><tr><th scope="col">Figure</th><th scope="col" class="number">Ratio</th><th scope="col" class="number">95 %</th><th scope="col">Verdict</th></tr></thead>
    <tbody>${document.comparisons.map((/** @type {any} */ one, /** @type {number} */ index) => html`<tr key=${index}><th scope="row">${one.measurement}</th><td class="number">${short(one.ratio)}</td>
      <td class="number">${one.ci95 ? `${short(one.ci95[0])} – ${short(one.ci95[1])}` : '–'}</td><td>${words[/** @type {keyof typeof words} */ (one.verdict)] ?? one.verdict}</td></tr>`)}</tbody></table></div>`;
}

function Study({ document }) {
  return html`${document.tables.map((/** @type {any} */ table) => html`<div key=${table.table} class="scroll" tabindex="0" role="region" aria-label="Table ${table.table}"><table class="plain"><caption>Table ${table.table}</caption>
      <thead><tr><th scope="col">Row</th><th scope="col">Metric</th><th scope="col" class="number">Here</th><th scope="col" class="number">Published</th><th scope="col" class="number">Here, % of one drive</th><th scope="col" class="number">Published, % of one drive</th></tr></thead>
      <tbody>${table.rows.map((/** @type {any} */ row, /** @type {number} */ index) => html`<tr key=${index}><th scope="row">${row.row}</th><td>${row.metric}</td>
        ${[row.measured, row.published, row.percent_of_single, row.published_percent_of_single].map((value, column) => html`<td key=${column} class="number">${value === null || value === undefined ? '–' : short(value)}</td>`)}</tr>`)}</tbody></table></div>`)}
    <h3>Findings</h3><ul class="reasons">${document.findings.map((/** @type {any} */ one) => html`<li key=${one.id}><b>${one.id}: ${one.verdict.replace('_', ' ')}</b> ${one.why}</li>`)}</ul>`;
}

/** The run that is in progress: what it has measured so far. */
function Progress({ run }) {
  const [figures, setFigures] = useState(/** @type {any} */ (null));
  useEffect(() => {
    let timer = 0;
    let isCurrent = true;
    const look = async () => {
      try {
        const { runs: [newest] } = await tool('lab-list');
        if (newest && !newest.finished) {
          const found = await tool('lab-show', [newest.run]);
          if (isCurrent) setFigures(found);
        }
      } catch {
        // Before the first figure there is nothing to show.
      }
      if (isCurrent) timer = setTimeout(look, LOOK_MS);
    };
    if (run.words.includes('run')) look();
    return () => {
      isCurrent = false;
      clearTimeout(timer);
    };
  }, [run.number]);
  const stop = () => ask({
    title: 'Stop the run', verb: 'Stop', text: 'The run is interrupted. Figures measured so far stay in the result store.',
    words: () => run.words.slice(1), run: () => call('DELETE', `/console/lab/runs/${run.number}`),
  });
  return html`<section class="card" aria-labelledby="lab-now"><header><h2 id="lab-now">In progress</h2><span class="quiet">since ${moment(run.began_unix_ms)}</span>
      ${may('admin') && html`<div class="buttons"><button onClick=${stop}>Stop</button></div>`}</header>
    <${Command} words=${run.words.filter((/** @type {string} */ word) => !['--json', '--'].includes(word))} />
    <p class="messages">${run.messages.at(-1) ?? 'starting…'}</p>
    ${figures && html`<${Figures} run=${figures} />`}</section>`;
}

const PROFILE = { name: 'profile', kind: /** @type {const} */ ('select'), label: 'Method', value: '' };

/** @param {any[]} profiles @param {() => void} then */
const beginRun = (profiles, then) => () => ask({
  title: 'Measure a target', verb: 'Measure',
  text: 'Measuring writes to the target, unless it is read only. In a folder, a temporary file is measured and removed.',
  fields: [
    { name: 'target', label: 'Target: a file, block device, folder, nbd:// URI, or model:NAME', required: true },
    { ...PROFILE, value: profiles[0]?.name, options: profiles.map((profile) => [profile.name, `${profile.name} (${profile.tool})`]) },
    { name: 'size', label: 'Size to use (empty: as fits)' },
    { name: 'seconds', kind: 'number', label: 'Seconds per figure (empty: as the method says)' },
    { name: 'runs', kind: 'number', label: 'Runs per figure (empty: as the method says)' },
    { name: 'readOnly', kind: 'check', label: 'Write nothing; measurements that write are skipped' },
    { name: 'force', kind: 'check', label: 'Overwrite the data on the target', help: 'All data on an existing file or device is lost.' },
  ],
  words: (values) => ['lab', 'run', values.target || 'TARGET', '--profile', values.profile, ...(values.size ? ['--size', values.size] : []), ...(values.seconds ? ['--seconds', values.seconds] : []),
    ...(values.runs ? ['--runs', values.runs] : []), values.readOnly && '--read-only', values.force && '--force'],
  run: (values) => post('/console/lab/runs', {
    kind: 'run', target: values.target, profile: values.profile, read_only: values.readOnly, force: values.force,
    ...(values.size ? { size: values.size } : {}), ...(values.seconds ? { seconds: Number(values.seconds) } : {}), ...(values.runs ? { runs: Number(values.runs) } : {}),
  }),
  done: () => 'The run has begun.', then,
});

/** @param {() => void} then */
const beginStudy = (then) => () => ask({
  title: 'Repeat a published study', verb: 'Begin',
  text: 'Its configurations, method and tables, on modelled drives in virtual time, one short run of each figure.',
  fields: [{ name: 'study', kind: 'select', label: 'Study', value: '000', options: ['000', '001', '002', '003', '004'].map((name) => [name, name]) }],
  words: ({ study }) => ['lab', 'study', study, '--quick', '--model'],
  run: ({ study }) => post('/console/lab/runs', { kind: 'study', study }),
  done: () => 'The study has begun.', then,
});

export function Lab() {
  const [runs, setRuns] = useState(/** @type {any[]|null} */ (null));
  const [begun, setBegun] = useState(/** @type {any[]} */ ([]));
  const [profiles, setProfiles] = useState(/** @type {any[]} */ ([]));
  const [shown, setShown] = useState(/** @type {any} */ (null));
  const [chosen, setChosen] = useState(/** @type {string[]} */ ([]));
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const running = begun.find((run) => run.state === 'running');
  const look = async () => {
    const { runs: found } = await get('/console/lab/runs');
    setBegun(found);
    return found;
  };
  const list = () => tool('lab-list').then((found) => setRuns(found.runs), setProblem);
  useEffect(() => {
    if (!may('operate')) return;
    look().catch(setProblem);
    list();
    tool('lab-profiles').then((found) => setProfiles(found.profiles), setProblem);
  }, []);
  useEffect(() => {
    if (!running) return undefined;
    const timer = setInterval(async () => {
      const found = await look().catch(() => null);
      const now = found?.find((/** @type {any} */ run) => run.number === running.number);
      if (now && now.state !== 'running') list();
    }, LOOK_MS);
    return () => clearInterval(timer);
  }, [running?.number]);
  const show = (/** @type {Promise<any>} */ document, /** @type {string} */ kind, /** @type {string} */ title) => {
    setProblem(null);
    document.then((found) => setShown({ kind, title, document: found }), setProblem);
  };
  const ended = begun.filter((run) => run.state !== 'running').reverse();
  if (!may('operate')) return html`<main id="main" tabindex="-1"><div class="title"><h1>Laboratory</h1></div><p class="quiet">The laboratory needs the role operate.</p></main>`;
  return html`<main id="main" tabindex="-1">
    <div class="title"><h1>Laboratory</h1>${may('admin') && html`<div class="buttons"><button class="primary" disabled=${!profiles.length} onClick=${beginRun(profiles, look)}>Measure a target</button><button onClick=${beginStudy(look)}>Repeat a study</button></div>`}</div>
    <${Failure} problem=${problem} />
    ${running && html`<${Progress} key=${running.number} run=${running} />`}
    ${ended.length > 0 && html`<section class="card" aria-labelledby="lab-begun"><header><h2 id="lab-begun">Begun here</h2></header><ul class="jobs">${ended.map((run) => html`<li key=${run.number}>
      <code>stripewise ${run.words.filter((/** @type {string} */ word) => !['--json', '--'].includes(word)).join(' ')}</code> <b>${run.state}</b>
      ${run.document?.tables && html` <button class="small" onClick=${() => setShown({ kind: 'study', title: `Study ${run.document.study}`, document: run.document })}>Show</button>`}
      ${run.error && html`<${Failure} problem=${{ message: run.error, hint: run.hint }} />`}</li>`)}</ul></section>`}
    ${shown && html`<section class="card" aria-labelledby="lab-shown"><header><h2 id="lab-shown">${shown.title}</h2><div class="buttons"><button onClick=${() => setShown(null)}>Close</button></div></header>
      ${shown.kind === 'run' ? html`<${Figures} run=${shown.document} />` : shown.kind === 'compare' ? html`<${Comparison} document=${shown.document} />` : html`<${Study} document=${shown.document} />`}</section>`}
    <section class="card" aria-labelledby="lab-runs"><header><h2 id="lab-runs">Runs</h2><div class="buttons">
        <button disabled=${chosen.length !== 2} onClick=${() => show(tool('lab-compare', chosen), 'compare', `${chosen[1]} relative to ${chosen[0]}`)}>Compare two</button></div></header>
      ${runs === null ? html`<p class="quiet">Reading the runs…</p>` : !runs.length ? html`<p class="quiet">No runs yet.</p>` : html`<div class="scroll" tabindex="0" role="region" aria-label="Table of runs"><table class="plain"><caption class="hidden">Runs in the result store</caption>
        <thead><tr><th scope="col"><span class="hidden">Compare</span></th><th scope="col">Run</th><th scope="col">Date</th><th scope="col">Method</th><th scope="col">Target</th><th scope="col"><span class="hidden">Actions</span></th></tr></thead>
        <tbody>${runs.map((run) => html`<tr key=${run.run}><td><input type="checkbox" aria-label="Compare ${run.run}" checked=${chosen.includes(run.run)}
            onChange=${(/** @type {any} */ event) => setChosen(event.target.checked ? [...chosen, run.run].slice(-2) : chosen.filter((/** @type {string} */ one) => one !== run.run))} /></td>
          <th scope="row">${run.run}${!run.finished && html` <span class="tag">not finished</span>`}</th><td class="time">${moment(Date.parse(run.date))}</td><td>${run.profile}</td><td class="path">${run.target}</td>
          <td><div class="row-buttons"><button class="small" aria-label="Show ${run.run}" onClick=${() => show(tool('lab-show', [run.run]), 'run', run.run)}>Show</button>
            <a class="button small" aria-label="Report of ${run.run}" href="/console/lab/reports/${part(run.run)}" download>Report</a></div></td></tr>`)}</tbody></table></div>`}
    </section>
  </main>`;
}
