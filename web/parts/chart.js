// A chart over time. The canvas has a text for readers that do not see it.

import uPlot from '../vendor/uplot.js';
import { html, signal, useEffect, useRef } from '../lib/html.js';

/** Changes with the theme: charts are drawn again in its colours. */
export const theme = signal(0);
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
  theme.value += 1;
});

const TIME = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit', hour12: false });
const time = (/** @type {number} */ seconds) => TIME.format(new Date(seconds * 1000));
const css = (/** @type {string} */ name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/**
 * @param {{ label: string, data: number[][], series: { label: string, color: string, dash?: number[] }[],
 *   format: (value: number) => string, height?: number, summary: string, x?: 'time'|'number', xFormat?: (value: number) => string,
 *   range?: [number, number], bars?: boolean }} props
 *   data: the axis in seconds (or numbers), then each series
 */
export function Chart({ label, data, series, format, height = 120, summary, x = 'time', xFormat, range, bars = false }) {
  const box = useRef(/** @type {HTMLDivElement|null} */ (null));
  const plot = useRef(/** @type {any} */ (null));
  const latest = useRef(/** @type {any} */ (data));
  latest.current = data;
  const ends = useRef(range);
  ends.current = range;
  const now = theme.value;
  useEffect(() => {
    const element = /** @type {HTMLDivElement} */ (box.current);
    const axis = { stroke: css('--muted'), grid: { stroke: css('--line'), width: 1 }, ticks: { show: false }, font: '11px system-ui, sans-serif' };
    const bounds = (/** @type {any} */ _, /** @type {number} */ low, /** @type {number} */ high) =>
      ends.current ?? (bars ? [low - 0.5, high + 0.5] : [low, high]);
    const options = /** @type {any} */ ({
      width: Math.max(80, element.clientWidth), height,
      legend: { show: false }, cursor: { show: true, points: { size: 5 }, drag: { x: false, y: false } },
      scales: { x: { time: x === 'time', range: bounds }, y: { range: (/** @type {any} */ _, /** @type {number} */ low, /** @type {number} */ high) => [0, Math.max(high * 1.1, 1e-3)] } },
      axes: [
        { ...axis, size: 24, space: 70, values: (/** @type {any} */ _, /** @type {number[]} */ ticks) => ticks.map(xFormat ?? time) },
        { ...axis, size: 62, space: 32, values: (/** @type {any} */ _, /** @type {number[]} */ ticks) => ticks.map(format) },
      ],
      series: [{}, ...series.map(({ label: name, color, dash }) => ({ label: name, stroke: css(color), width: 1.5, dash, points: { show: false }, ...(bars ? { paths: /** @type {any} */ (uPlot).paths.bars({ size: [0.6, 60] }), fill: css(color) } : {}) }))],
    });
    plot.current = new uPlot(options, latest.current, element);
    const observer = new ResizeObserver(() => plot.current?.setSize({ width: Math.max(80, element.clientWidth), height }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [now, series.length, height]);
  useEffect(() => {
    plot.current?.setData(data);
  }, [data]);
  return html`<figure class="chart">
    <figcaption>${label}<span class="keys">${series.map(({ label: name, color }) =>
      html`<span key=${name}><i style=${{ background: `var(${color})` }}></i>${name}</span>`)}</span></figcaption>
    <div ref=${box} role="img" aria-label="${label}: ${summary}"></div>
  </figure>`;
}
