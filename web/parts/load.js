// Throughput and latency of a pool: now, and over the last hour.

import { html, useMemo } from '../lib/html.js';
import { hours, loads } from '../lib/live.js';
import { latency, megabytes, short } from '../lib/units.js';
import { Chart } from './chart.js';

const RATES = [{ label: 'read', color: '--read' }, { label: 'write', color: '--write' }];
const HOUR_MS = 3600e3;
const LEAST_MS = 120e3;
const NONE = { mb_per_s: 0, requests_per_s: 0, mean_us: null, p99_at_most_us: null };

const mean = (/** @type {number[]} */ values) => values.reduce((sum, value) => sum + value, 0) / Math.max(1, values.length);

/** Figures of the last second. @param {{ pool: string }} props */
export function Now({ pool }) {
  const { reads = NONE, writes = NONE } = loads.value[pool]?.rates ?? {};
  const row = (/** @type {string} */ name, /** @type {any} */ of) => html`<tr><th scope="row">${name}</th>
    <td>${megabytes(of.mb_per_s)}</td><td>${short(of.requests_per_s)}/s</td><td>${latency(of.mean_us)}</td><td>${latency(of.p99_at_most_us)}</td></tr>`;
  return html`<table class="now"><caption>Load of the last second</caption>
    <thead><tr><td></td><th scope="col">throughput</th><th scope="col">requests</th><th scope="col">mean</th><th scope="col" title="99 % of requests take at most this long">p99 ≤</th></tr></thead>
    <tbody>${row('read', reads)}${row('write', writes)}</tbody></table>`;
}

/** Charts of the last hour. @param {{ pool: string, height?: number }} props */
export function Hour({ pool, height = 110 }) {
  const points = hours.value[pool] ?? [];
  const data = useMemo(() => {
    const times = points.map((point) => point.unix_ms / 1000);
    const of = (/** @type {(point: any) => any} */ value) => points.map(value);
    return {
      rates: [times, of((point) => point.reads.mb_per_s), of((point) => point.writes.mb_per_s)],
      waits: [times, of((point) => point.reads.mean_us), of((point) => point.writes.mean_us)],
    };
  }, [points]);
  const end = points.at(-1)?.unix_ms ?? Date.now();
  // A pool that was opened lately has no hour yet.
  const begin = Math.max(end - HOUR_MS, Math.min(points[0]?.unix_ms ?? end, end - LEAST_MS));
  const range = /** @type {[number, number]} */ ([begin / 1000, end / 1000]);
  const said = `read ${megabytes(mean(data.rates[1]))}, write ${megabytes(mean(data.rates[2]))} on average over the last hour`;
  const waits = (/** @type {number} */ index) => latency(mean(data.waits[index].filter((value) => value !== null)));
  return html`<div class="charts">
    <${Chart} label="Throughput, last hour" data=${data.rates} series=${RATES} format=${(/** @type {number} */ value) => `${short(value)} MB/s`} height=${height} summary=${said} range=${range} />
    <${Chart} label="Mean latency, last hour" data=${data.waits} series=${RATES} format=${latency} height=${height} summary="read ${waits(1)}, write ${waits(2)}" range=${range} />
  </div>`;
}
