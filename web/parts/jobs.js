// Running and pending jobs of a pool: share done, rate, time left.

import { html } from '../lib/html.js';
import { duration, megabytes } from '../lib/units.js';

const VERBS = { rebuild: 'Rebuild', scrub: 'Scrub', convert: 'Conversion', destage: 'Destage', tier: 'Tiering', rebalance: 'Rebalance' };

/** @param {{ pool: any }} props */
export function Jobs({ pool }) {
  if (!pool.activity.length) return html`<p class="quiet">No job is running.</p>`;
  return html`<ul class="jobs">
    ${pool.activity.map((/** @type {any} */ job) => {
      const drive = pool.drives.find((/** @type {any} */ drive) => drive.id === job.drive);
      const of = [job.volume && `volume ${job.volume}`, drive && `to ${drive.path}`].filter(Boolean).join(', ');
      const name = VERBS[/** @type {keyof typeof VERBS} */ (job.kind)] ?? job.kind;
      return html`<li key="${job.kind} ${job.volume} ${job.drive}">
        <div class="job-head"><b>${name}</b> <span class="of">${of}</span>
          <span class="figures">${job.percent.toFixed(1)} %${job.mb_per_s > 0 ? ` · ${megabytes(job.mb_per_s)}` : ' · waiting'}${
            job.seconds_left === null ? '' : ` · ${duration(job.seconds_left)} left`}</span></div>
        <progress max="100" value=${job.percent} aria-label="${name} ${of}"></progress>
      </li>`;
    })}
  </ul>`;
}
