// Requests to the daemon. A failure is a Problem with the daemon's own words.

import { signal } from './html.js';

/**
 * @typedef {{ name: string, role: 'read'|'operate'|'admin', csrf: string|null, host: string, version: string }} Session
 */

/** The session; `null` while it is not known, `false` without one. */
export const session = signal(/** @type {Session|null|false} */ (null));

/** Why the daemon did not do as asked. */
export class Problem extends Error {
  /** @param {number} status @param {string} detail @param {string|undefined} hint */
  constructor(status, detail, hint) {
    super(detail);
    this.status = status;
    this.hint = hint;
  }
}

/**
 * @param {string} method
 * @param {string} path
 * @param {unknown} [body]
 * @returns {Promise<any>} the document of the answer
 */
export async function call(method, path, body) {
  /** @type {Record<string, string>} */
  const headers = {};
  const now = session.value;
  if (body !== undefined) headers['content-type'] = 'application/json';
  if (method !== 'GET' && now && now.csrf) headers['x-csrf-token'] = now.csrf;
  let answer;
  try {
    answer = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch {
    throw new Problem(0, 'the daemon does not answer', 'it may be stopped: systemctl status stripewise');
  }
  const text = await answer.text();
  /** @type {any} */
  let document = null;
  try {
    document = JSON.parse(text);
  } catch {
    // An answer that is no document has no words of its own either.
  }
  if (answer.ok) return document;
  if (answer.status === 401 && path !== '/console/login') session.value = false;
  const detail = document?.detail || text || `the daemon answered ${answer.status}`;
  throw new Problem(answer.status, detail, document?.command_hint || document?.hint);
}

/** @param {string} path */
export const get = (path) => call('GET', path);
/** @param {string} path @param {unknown} [body] */
export const post = (path, body) => call('POST', path, body);

const ROLES = ['read', 'operate', 'admin'];

/** @param {string} role @returns {boolean} whether the session may do what needs this role */
export function may(role) {
  const now = session.value;
  return Boolean(now) && ROLES.indexOf(/** @type {Session} */ (now).role) >= ROLES.indexOf(role);
}

/** A name as a part of a path. */
export const part = encodeURIComponent;
/** @param {string} pool */
export const poolPath = (pool) => `/api/v1/pools/${part(pool)}`;
/** @param {string} pool @param {string} volume */
export const volumePath = (pool, volume) => `${poolPath(pool)}/volumes/${part(volume)}`;
