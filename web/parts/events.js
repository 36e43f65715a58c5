// Events of a pool, newest first.

import { html, useEffect } from '../lib/html.js';
import { events, readEvents } from '../lib/live.js';
import { moment } from '../lib/units.js';

/** @param {{ pool: string }} props */
export function Events({ pool }) {
  useEffect(() => {
    readEvents(pool).catch(() => {});
  }, [pool]);
  const all = events.value[pool];
  if (!all) return html`<p class="quiet">Reading the events…</p>`;
  if (!all.length) return html`<p class="quiet">Nothing has happened yet.</p>`;
  return html`<div class="scroll events" tabindex="0" role="region" aria-label="Table of events"><table class="plain"><caption class="hidden">Events, newest first</caption>
    <thead><tr><th scope="col">Time</th><th scope="col">Subject</th><th scope="col">Event</th></tr></thead>
    <tbody>${all.map((event, index) => html`<tr key="${event.time_unix_ms} ${all.length - index}">
      <td class="time"><time datetime=${new Date(event.time_unix_ms).toISOString()}>${moment(event.time_unix_ms)}</time></td>
      <td>${event.kind}</td><td>${event.text}</td></tr>`)}</tbody></table></div>`;
}
