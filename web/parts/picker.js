// Choice of drives: those of this host with what they hold. A drive that cannot be used is listed
// with the reason.

import { html, useEffect, useState } from '../lib/html.js';
import { get, may, post } from '../lib/api.js';
import { pools } from '../lib/live.js';
import { KINDS } from '../lib/dialog.js';
import { size } from '../lib/units.js';

/**
 * @typedef {{ path: string, bytes: number, about: string, use: 'free'|'holds'|'no', why: string }} Candidate
 */

/** @param {any} shown a drive of `drive show` @returns {Candidate} */
function candidate(shown) {
  const about = [shown.model, shown.serial && `serial ${shown.serial}`, shown.kind].filter(Boolean).join(' · ');
  const base = { path: shown.path, bytes: shown.capacity_bytes, about };
  if (shown.superblock && shown.belongs !== false) {
    const where = shown.belongs === null ? `of pool ${shown.superblock.pool_name ?? 'unknown'}, which is not known here` : `of pool ${shown.superblock.pool_name ?? ''}`;
    return { ...base, use: shown.belongs === null ? 'holds' : 'no', why: `is a drive ${where}` };
  }
  if (shown.superblock) return { ...base, use: 'holds', why: 'was a drive of a pool' };
  const inUse = shown.holds.find((/** @type {string} */ text) => /mounted|in use|swap|holder/i.test(text));
  if (inUse) return { ...base, use: 'no', why: inUse };
  if (shown.holds.length) return { ...base, use: 'holds', why: `holds ${shown.holds.join(', ')}` };
  return { ...base, use: 'free', why: '' };
}

/** Looks at one drive. @param {string} path @returns {Promise<Candidate>} */
async function look(path) {
  try {
    const { drives: [shown] } = await post('/api/v1/drives/show', { drives: [path] });
    return candidate(shown);
  } catch (failure) {
    const { message } = /** @type {Error} */ (failure);
    return { path, bytes: 0, about: '', use: 'no', why: message };
  }
}

/** Drives of a place. @param {string} folder @returns {Promise<Candidate[]>} */
async function search(folder) {
  const { paths } = await get(`/console/places${folder ? `?folder=${encodeURIComponent(folder)}` : ''}`);
  const found = [];
  // One after the other: the daemon opens each of them.
  for (const path of paths) found.push(await look(path));
  return found;
}

/** Loads candidates: block devices first, folders on request. */
function useCandidates() {
  const [found, setFound] = useState(/** @type {Candidate[]|null} */ (null));
  const [problem, setProblem] = useState('');
  const add = async (/** @type {string} */ folder) => {
    setProblem('');
    try {
      const more = await search(folder);
      setFound((/** @type {Candidate[]|null} */ before) => {
        const known = new Set(more.map((one) => one.path));
        return [...(before ?? []).filter((one) => !known.has(one.path)), ...more];
      });
      if (!more.length) setProblem(folder ? `no drive in ${folder}` : '');
    } catch (failure) {
      setFound((/** @type {Candidate[]|null} */ before) => before ?? []);
      setProblem(/** @type {Error} */ (failure).message);
    }
  };
  useEffect(() => {
    add('');
  }, []);
  return { found, problem, add };
}

function Folder({ add, id }) {
  const [folder, setFolder] = useState('');
  if (!may('admin')) return null;
  const search = () => folder && add(folder);
  return html`<div class="inline">
    <label for="${id}-folder">Files of a folder</label>
    <input id="${id}-folder" value=${folder} placeholder="/srv/drives" spellcheck=${false} onInput=${(/** @type {any} */ event) => setFolder(event.target.value)}
      onKeyDown=${(/** @type {KeyboardEvent} */ event) => { if (event.key === 'Enter') { event.preventDefault(); search(); } }} />
    <button type="button" onClick=${search}>List</button>
  </div>`;
}

function List({ found, chosen, toggle, id, type, force }) {
  const usable = found.filter((/** @type {Candidate} */ one) => one.use !== 'no');
  const others = found.filter((/** @type {Candidate} */ one) => one.use === 'no');
  return html`<ul class="candidates">
    ${usable.map((/** @type {Candidate} */ one) => html`<li key=${one.path}>
      <label><input type=${type} name=${id} checked=${chosen.includes(one.path)} onChange=${(/** @type {any} */ event) => toggle(one.path, event.target.checked)} />
      <span class="path">${one.path}</span> <span class="bytes">${size(one.bytes)}</span>
      <span class="sub">${one.about}${one.use === 'holds' ? html` · <b class="warn-text">${one.why}${force ? '; it is overwritten' : '; needs “overwrite”'}</b>` : ''}</span></label></li>`)}
    ${!usable.length && html`<li class="quiet">No drive can be used.</li>`}
    ${others.map((/** @type {Candidate} */ one) => html`<li key=${one.path} class="cannot"><span class="path">${one.path}</span>
      <span class="sub">cannot be used: ${one.why}</span></li>`)}
  </ul>`;
}

/** Several drives. */
export function DrivesField({ value, set, id, values }) {
  const { found, problem, add } = useCandidates();
  const toggle = (/** @type {string} */ path, /** @type {boolean} */ on) =>
    set(on ? [...value, path] : value.filter((/** @type {string} */ one) => one !== path));
  return html`${found ? html`<${List} found=${found} chosen=${value} toggle=${toggle} id=${id} type="checkbox" force=${values.force} />` : html`<p class="quiet" role="status">Looking at drives…</p>`}
    ${problem && html`<p class="failure" role="alert">${problem}</p>`}
    <${Folder} add=${add} id=${id} />`;
}

/** One drive: a spare of the pool, or another drive of this host. */
export function DriveField({ field, value, set, id, values }) {
  const { found, problem, add } = useCandidates();
  const pool = pools.value?.get(field.extra.pool.name) ?? field.extra.pool;
  const spares = pool.drives
    .filter((/** @type {any} */ drive) => drive.role === 'spare' && drive.state === 'online')
    .map((/** @type {any} */ drive) => ({ path: drive.id, bytes: drive.capacity_bytes, about: `spare ${drive.path}`, use: 'free', why: '' }));
  const list = [...spares, ...(found ?? [])];
  return html`${found || spares.length ? html`<${List} found=${list} chosen=${[value]} toggle=${set} id=${id} type="radio" force=${values.force} />` : html`<p class="quiet" role="status">Looking at drives…</p>`}
    ${problem && html`<p class="failure" role="alert">${problem}</p>`}
    <${Folder} add=${add} id=${id} />
    <div class="inline"><label for="${id}-path">or a path</label>
      <input id="${id}-path" value=${value} spellcheck=${false} onInput=${(/** @type {any} */ event) => set(event.target.value)} /></div>`;
}

KINDS.drives = DrivesField;
KINDS.drive = DriveField;
