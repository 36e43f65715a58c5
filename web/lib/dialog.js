// One dialog at a time: a form that asks, shows the command line that does the same, and says what
// went wrong. Modal, so that nothing behind it is touched by accident; Escape closes it.

import { html, signal, useEffect, useRef, useState } from './html.js';
import { session } from './api.js';
import { refreshAll } from './live.js';
import { shell } from './units.js';

/**
 * @typedef {Object} Field
 * @property {string} name
 * @property {string} label
 * @property {'text'|'number'|'select'|'check'|'range'|'drives'|'drive'} [kind]
 * @property {[string, string][]} [options] of a select: value and text
 * @property {any} [value] at the beginning
 * @property {string} [help]
 * @property {boolean} [required]
 * @property {(values: Record<string, any>) => boolean} [shown]
 * @property {any} [extra] what the kind of field needs besides
 *
 * @typedef {Object} Action
 * @property {string} title
 * @property {string} verb on the button
 * @property {string} [text] what will happen
 * @property {string} [loss] what is lost: the action destroys
 * @property {string} [type] the name to be typed where it destroys
 * @property {Field[]} [fields]
 * @property {(values: Record<string, any>) => (string|undefined|false)[]} words of the command line
 * @property {(values: Record<string, any>) => Promise<any>} run
 * @property {(answer: any, values: Record<string, any>) => string} [done] for the notice
 * @property {(answer: any, values: Record<string, any>) => void} [then]
 */

/** The open dialog. */
const open = signal(/** @type {Action|null} */ (null));
/** Notices that something was done, newest last. */
export const notices = signal(/** @type {{ id: number, text: string, bad: boolean }[]} */ ([]));
let next = 0;

const NOTICE_MS = 8000;

/** @param {string} text @param {boolean} [bad] */
export function notify(text, bad = false) {
  const id = (next += 1);
  notices.value = [...notices.value, { id, text, bad }].slice(-4);
  setTimeout(() => {
    notices.value = notices.value.filter((notice) => notice.id !== id);
  }, bad ? 3 * NOTICE_MS : NOTICE_MS);
}

/** Asks for an action. @param {Action} action */
export function ask(action) {
  open.value = action;
}

/** A dialog without a question: a title, and its content. */
const shown = signal(/** @type {{ title: string, content: (close: () => void) => any }|null} */ (null));

/** Shows something in a dialog. @param {string} title @param {(close: () => void) => any} content */
export function show(title, content) {
  shown.value = { title, content };
}

function Shown({ of }) {
  const dialog = useRef(/** @type {HTMLDialogElement|null} */ (null));
  useEffect(() => {
    dialog.current?.showModal();
  }, []);
  const close = () => {
    dialog.current?.close();
    shown.value = null;
  };
  return html`<dialog ref=${dialog} aria-labelledby="shown-title" onCancel=${(/** @type {Event} */ event) => { event.preventDefault(); close(); }}>
    <div class="title"><h2 id="shown-title">${of.title}</h2><button class="close" onClick=${close}>Close</button></div>${of.content(close)}</dialog>`;
}

/** Kinds of fields that other files bring. @type {Record<string, any>} */
export const KINDS = {};

function Control({ field, value, set, id, values }) {
  const { kind = 'text', options = [], required } = field;
  if (KINDS[kind]) return html`<${KINDS[kind]} ...${{ field, value, set, id, values }} />`;
  if (kind === 'check') {
    return html`<input id=${id} type="checkbox" checked=${value} onChange=${(/** @type {any} */ event) => set(event.target.checked)} />`;
  }
  if (kind === 'select') {
    return html`<select id=${id} value=${value} onChange=${(/** @type {any} */ event) => set(event.target.value)}>
      ${options.map(([word, text]) => html`<option key=${word} value=${word} selected=${word === value}>${text}</option>`)}
    </select>`;
  }
  return html`<input id=${id} type=${kind} value=${value} required=${required} autocomplete="off" spellcheck=${false}
    aria-describedby=${field.help ? `${id}-help` : undefined}
    onInput=${(/** @type {any} */ event) => set(event.target.value)} />`;
}

/** Fields of a form. @param {{ fields: Field[], values: Record<string, any>, set: (name: string, value: any) => void, prefix: string }} props */
export function Fields({ fields, values, set, prefix }) {
  const shown = fields.filter((field) => !field.shown || field.shown(values));
  return shown.map((field) => {
    const id = `${prefix}-${field.name}`;
    const control = html`<${Control} field=${field} value=${values[field.name]} id=${id} values=${values}
      set=${(/** @type {any} */ value) => set(field.name, value)} />`;
    const isGroup = field.kind === 'drives' || field.kind === 'drive';
    const help = field.help && html`<p class="help" id="${id}-help">${field.help}</p>`;
    if (isGroup) return html`<fieldset key=${field.name} class="field"><legend>${field.label}</legend>${control}${help}</fieldset>`;
    return html`<div key=${field.name} class="field ${field.kind === 'check' ? 'check' : ''}">
      <label for=${id}>${field.label}</label>${control}${help}
    </div>`;
  });
}

/** The command line that does the same. */
export function Command({ words }) {
  const text = shell(['stripewise', ...words.filter(Boolean)]);
  const [copied, setCopied] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    setCopied(true);
    setTimeout(() => setCopied(false), 2000);
  };
  return html`<div class="command">
    <code tabindex="0" role="group" aria-label="Command line that does the same">${text}</code>
    ${navigator.clipboard && html`<button type="button" class="quiet" onClick=${copy}>${copied ? 'Copied' : 'Copy'}</button>`}
  </div>`;
}

/** The daemon's words on a failure. */
export function Failure({ problem }) {
  if (!problem) return null;
  return html`<div class="failure" role="alert">
    <p>${problem.message}</p>
    ${problem.hint && html`<p class="hint"><b>Next:</b> ${problem.hint}</p>`}
  </div>`;
}

/** @param {Field[]} fields */
export function initial(fields) {
  return Object.fromEntries(fields.map((field) => [field.name, field.value ?? (field.kind === 'drives' ? [] : field.kind === 'check' ? false : '')]));
}

function Form({ action }) {
  const fields = /** @type {Field[]} */ (action.fields ?? []);
  const [values, setValues] = useState(() => initial(fields));
  const [typed, setTyped] = useState('');
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const dialog = useRef(/** @type {HTMLDialogElement|null} */ (null));
  useEffect(() => {
    dialog.current?.showModal();
  }, []);
  const close = () => {
    dialog.current?.close();
    open.value = null;
  };
  const set = (/** @type {string} */ name, /** @type {any} */ value) =>
    setValues((/** @type {any} */ before) => ({ ...before, [name]: value }));
  const isConfirmed = !action.type || typed === action.type;
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    if (busy || !isConfirmed) return;
    setBusy(true);
    setProblem(null);
    try {
      const answer = await action.run(values);
      close();
      notify(action.done ? action.done(answer, values) : `${action.title}: done`);
      action.then?.(answer, values);
      // The daemon looks once a second; who acted sees the result at once.
      await refreshAll().catch(() => {});
    } catch (failure) {
      setProblem(failure);
      setBusy(false);
    }
  };
  return html`<dialog ref=${dialog} aria-labelledby="dialog-title" onCancel=${(/** @type {Event} */ event) => { event.preventDefault(); close(); }}>
    <form onSubmit=${submit} novalidate>
      <h2 id="dialog-title">${action.title}</h2>
      ${action.text && html`<p>${action.text}</p>`}
      ${action.loss && html`<p class="loss"><b>What is lost:</b> ${action.loss}</p>`}
      <${Fields} fields=${fields} values=${values} set=${set} prefix="dialog" />
      ${action.type && html`<div class="field">
        <label for="dialog-typed">Type <b>${action.type}</b> to confirm</label>
        <input id="dialog-typed" value=${typed} autocomplete="off" spellcheck=${false}
          onInput=${(/** @type {any} */ event) => setTyped(event.target.value)} />
      </div>`}
      <${Failure} problem=${problem} />
      <${Command} words=${action.words(values)} />
      <div class="buttons">
        <button type="button" onClick=${close}>Cancel</button>
        <button class=${action.loss ? 'danger' : 'primary'} disabled=${busy || !isConfirmed} aria-busy=${busy}>${action.verb}</button>
      </div>
    </form>
  </dialog>`;
}

/** The open dialog, and the notices. */
export function Dialogs() {
  const action = session.value ? open.value : null;
  return html`
    ${session.value && shown.value && html`<${Shown} key=${shown.value.title} of=${shown.value} />`}
    ${action && html`<${Form} key=${action.title} action=${action} />`}
    <div class="notices" role="status" aria-live="polite">
      ${notices.value.map((notice) => html`<p key=${notice.id} class=${notice.bad ? 'bad' : ''}>${notice.text}</p>`)}
    </div>`;
}
