// The console: header, pages, dialogs. The daemon decides what a session may do; pages only leave out
// what would be refused.

import { Fragment, effect, html, render, useEffect } from './lib/html.js';
import { get, post, session } from './lib/api.js';
import { Dialogs } from './lib/dialog.js';
import { connect, disconnect, link, pools } from './lib/live.js';
import { route, to } from './lib/router.js';
import { clock } from './lib/units.js';
import { theme } from './parts/chart.js';
import './parts/picker.js';
import { Create } from './pages/create.js';
import { Lab } from './pages/lab.js';
import { Login } from './pages/login.js';
import { Model } from './pages/model.js';
import { Overview } from './pages/overview.js';
import { Pool } from './pages/pool.js';
import { Volume } from './pages/volume.js';

const THEMES = ['auto', 'light', 'dark'];
const stored = localStorage.getItem('theme') ?? 'auto';
setTheme(THEMES.includes(stored) ? stored : 'auto');

function setTheme(/** @type {string} */ name) {
  localStorage.setItem('theme', name);
  document.documentElement.dataset.theme = name;
  theme.value += 1;
}

function Link() {
  const { state, at } = link.value;
  const text = { live: 'live', connecting: 'connecting…', lost: `disconnected, last state of ${clock(at)}` }[state];
  return html`<span class="link ${state}" role="status">${text}</span>`;
}

async function logout() {
  disconnect();
  await post('/console/logout', {}).catch(() => {});
  session.value = false;
  pools.value = null;
}

function Header({ now }) {
  const [page = ''] = route.value;
  const item = (/** @type {string} */ text, /** @type {string[]} */ parts, /** @type {string[]} */ pages) =>
    html`<a href=${to(...parts)} aria-current=${pages.includes(page) ? 'page' : undefined}>${text}</a>`;
  return html`<header class="top">
    <a class="skip" href="#main" onClick=${(/** @type {Event} */ event) => { event.preventDefault(); document.getElementById('main')?.focus(); }}>To the content</a>
    <span class="brand">Stripewise</span>
    <nav aria-label="Pages">${item('Pools', [], ['', 'pool', 'create'])}${item('Laboratory', ['lab'], ['lab'])}${item('Model', ['model'], ['model'])}</nav>
    <span class="host">${now.host}</span><${Link} />
    <span class="who">${now.name} <span class="tag">${now.role}</span></span>
    <label class="hidden" for="theme">Theme</label>
    <select id="theme" onChange=${(/** @type {any} */ event) => setTheme(event.target.value)}>
      ${THEMES.map((name) => html`<option key=${name} value=${name} selected=${name === document.documentElement.dataset.theme}>${name}</option>`)}
    </select>
    <button class="quiet" onClick=${logout}>Log out</button>
  </header>`;
}

function Page() {
  const [page, name, below, volume] = route.value;
  if (page === 'pool' && below === 'volume' && volume !== undefined) return html`<${Volume} key="${name}/${volume}" pool=${name} name=${volume} />`;
  if (page === 'pool' && name !== undefined) return html`<${Pool} key=${name} name=${name} />`;
  if (page === 'create') return html`<${Create} />`;
  if (page === 'lab') return html`<${Lab} />`;
  if (page === 'model') return html`<${Model} />`;
  return html`<${Overview} />`;
}

function App() {
  const now = session.value;
  const address = route.value.join('/');
  useEffect(() => {
    document.title = `${route.value.filter((part) => part !== 'pool').join(' / ') || 'Pools'} – Stripewise`;
    window.scrollTo(0, 0);
    document.getElementById('main')?.focus({ preventScroll: true });
  }, [address, Boolean(now)]);
  if (now === null) return html`<main class="login"><p class="quiet" role="status">Connecting…</p></main>`;
  if (now === false) return html`<${Login} />`;
  return html`<${Fragment}><${Header} now=${now} /><${Page} /><${Dialogs} /><//>`;
}

async function start() {
  render(html`<${App} />`, /** @type {Element} */ (document.getElementById('app')));
  try {
    session.value = await get('/console/session');
  } catch {
    session.value = false;
  }
  // A session that begins opens the stream, one that ends closes it; a renewed one changes nothing.
  let wasIn = false;
  effect(() => {
    const isIn = Boolean(session.value);
    if (isIn !== wasIn) (isIn ? connect : disconnect)();
    wasIn = isIn;
  });
}

start();
