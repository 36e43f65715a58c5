// The state of the pools, kept current by the daemon's event stream. Without a connection the last
// state stays, with its time; the connection comes back by itself.

import { batch, signal } from './html.js';
import { get, poolPath, part, session } from './api.js';

/** Pools by name. */
export const pools = signal(/** @type {Map<string, any>|null} */ (null));
/** Load of the last second, by pool. */
export const loads = signal(/** @type {Record<string, any>} */ ({}));
/** Load of the last hour and the seconds since, by pool. */
export const hours = signal(/** @type {Record<string, any[]>} */ ({}));
/** Events by pool, newest first, of the pools whose events are shown. */
export const events = signal(/** @type {Record<string, any[]>} */ ({}));
/** `live`, `connecting` or `lost`, and the time of the last word of the daemon. */
export const link = signal({ state: 'connecting', at: Date.now() });

const MAX_EVENTS = 200;
const HOUR_MS = 3600e3;
/** Pause before another attempt to connect. */
const AGAIN_MS = 1000;
/** The daemon sends loads each second; a silence of this length is a lost connection. */
const SILENCE_MS = 20000;

/** @type {EventSource|null} */
let source = null;
let timer = 0;
/** Pools that are being read, and whether they changed since. @type {Map<string, boolean>} */
const reading = new Map();

function put(/** @type {any} */ report) {
  const next = new Map(pools.value ?? []);
  next.set(report.name, report);
  pools.value = next;
}

/** Reads the state of a pool; once more if it is asked for while it is read. */
export async function refresh(/** @type {string} */ pool) {
  if (reading.has(pool)) {
    reading.set(pool, true);
    return;
  }
  reading.set(pool, false);
  try {
    const { pools: [report] } = await get(poolPath(pool));
    put(report);
  } catch (problem) {
    if (/** @type {any} */ (problem).status === 404) await refreshAll();
  }
  const isStale = reading.get(pool);
  reading.delete(pool);
  if (isStale) await refresh(pool);
}

/** Reads the state of all pools. */
export async function refreshAll() {
  const { pools: all } = await get('/api/v1/pools');
  pools.value = new Map(all.map((/** @type {any} */ report) => [report.name, report]));
  await Promise.all(all.map((/** @type {any} */ report) => readHour(report.name)));
}

async function readHour(/** @type {string} */ pool) {
  try {
    const { points } = await get(`/console/pools/${part(pool)}/hour`);
    hours.value = { ...hours.value, [pool]: points };
  } catch {
    // The chart begins with what comes.
  }
}

/** Reads the events of a pool, and keeps them current from now on. */
export async function readEvents(/** @type {string} */ pool) {
  const { events: all } = await get(`${poolPath(pool)}/events?last=${MAX_EVENTS}`);
  events.value = { ...events.value, [pool]: all.reverse() };
}

/** @type {Record<string, (news: any) => void>} */
const HANDLERS = {
  state: (news) => {
    const known = pools.value?.get(news.pool);
    if (known?.state !== news.state || known?.condition !== news.condition) refresh(news.pool);
  },
  event: (news) => {
    const known = events.value[news.pool];
    if (known) events.value = { ...events.value, [news.pool]: [news.event, ...known].slice(0, MAX_EVENTS) };
    refresh(news.pool);
  },
  progress: (news) => {
    const report = pools.value?.get(news.pool);
    if (!report) return;
    const isIt = (/** @type {any} */ job) =>
      job.kind === news.job.kind && job.volume === news.job.volume && job.drive === news.job.drive;
    if (!report.activity.some(isIt)) return refresh(news.pool);
    const activity = report.activity.map((/** @type {any} */ job) => (isIt(job) ? news.job : job));
    put({ ...report, activity });
  },
  done: (news) => refresh(news.pool),
  rates: (news) => {
    loads.value = { ...loads.value, [news.pool]: news };
    const since = news.rates.unix_ms - HOUR_MS;
    const hour = (hours.value[news.pool] ?? []).filter((point) => point.unix_ms > since);
    hours.value = { ...hours.value, [news.pool]: [...hour, news.rates] };
    const known = pools.value?.get(news.pool);
    if (known?.generation !== news.generation) return refresh(news.pool);
    if (JSON.stringify(known.mounts) !== JSON.stringify(news.mounts)) put({ ...known, mounts: news.mounts });
  },
  gone: () => refreshAll().catch(() => {}),
};

/** Opens the event stream, until the session ends. */
export function connect() {
  disconnect();
  if (!session.value || document.hidden) return;
  source = new EventSource('/api/v1/events');
  source.onopen = async () => {
    try {
      await refreshAll();
      for (const pool of Object.keys(events.value)) await readEvents(pool);
      alive();
    } catch {
      lost();
    }
  };
  source.onerror = lost;
  for (const [kind, handler] of Object.entries(HANDLERS)) {
    source.addEventListener(kind, (message) => {
      if (link.value.state === 'live') link.value = { state: 'live', at: Date.now() };
      watch();
      batch(() => handler(JSON.parse(/** @type {MessageEvent} */ (message).data)));
    });
  }
  watch();
}

function alive() {
  link.value = { state: 'live', at: Date.now() };
}

function watch() {
  clearTimeout(timer);
  // Without a pool the daemon has nothing to send.
  if (pools.value?.size) timer = setTimeout(lost, SILENCE_MS);
}

function lost() {
  source?.close();
  source = null;
  link.value = { state: 'lost', at: link.value.at };
  clearTimeout(timer);
  timer = setTimeout(async () => {
    try {
      session.value = await get('/console/session');
      connect();
    } catch {
      if (session.value) lost();
    }
  }, AGAIN_MS);
}

/** Closes the event stream. */
export function disconnect() {
  clearTimeout(timer);
  source?.close();
  source = null;
}

// A browser has few connections for a host: a page that is not seen gives its own back.
document.addEventListener('visibilitychange', () => (document.hidden ? disconnect() : connect()));
