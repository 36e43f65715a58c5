// Screenshots of a pool with a failed drive under load, and of a new pool with the advisor's proposals.

import { execFileSync } from 'node:child_process';
import { renameSync } from 'node:fs';
import { browse, given } from './kit.mjs';

const SECONDS = 100;

/** Writes to a volume and reads it, once. */
function load(volume, mib) {
  execFileSync(given.program, ['volume', 'write', volume], { input: Buffer.alloc(mib << 20, 7), stdio: ['pipe', 'ignore', 'ignore'] });
  execFileSync(given.program, ['volume', 'read', volume, '--offset', '0', '--length', `${mib}MiB`], { stdio: ['ignore', 'ignore', 'ignore'], maxBuffer: 1 << 30 });
}

await browse(async (page) => {
  const begin = Date.now();
  for (let turn = 0; Date.now() - begin < SECONDS * 1000; turn += 1) {
    load('tank/media', 24 + 8 * (turn % 5));
    load('tank/vm', 8 + 4 * (turn % 3));
    await page.waitForTimeout(250);
    if (turn === 4) renameSync(`${given.drives}/drive2.img`, `${given.drives}/gone`);
  }
  await page.getByRole('button', { name: 'Replace the drive' }).waitFor();
  await page.setViewportSize({ width: 1240, height: 430 });
  await page.screenshot({ path: `${given.to}/console-overview.png` });
  await page.getByRole('link', { name: 'tank' }).click();
  await page.getByText(/redundancy left, \d+ row/).first().waitFor();
  await page.setViewportSize({ width: 1100, height: 730 });
  await page.screenshot({ path: `${given.to}/console-pool.png` });
  await page.evaluate(() => { location.hash = '#/create'; });
  await page.getByLabel('Files of a folder').fill(given.drives);
  await page.getByRole('button', { name: 'List' }).click();
  for (const index of [5, 6, 7, 8, 9]) await page.getByRole('checkbox', { name: `drive${index}.img` }).check();
  await page.getByRole('button', { name: 'Show proposals' }).click();
  await page.getByRole('button', { name: /Take proposal 1/ }).click({ timeout: 60000 });
  await page.getByLabel('Name of the pool').fill('archive');
  await page.mouse.move(0, 0);
  await page.setViewportSize({ width: 1100, height: 2000 });
  await page.getByRole('region', { name: '3 Proposals' }).screenshot({ path: `${given.to}/console-create.png` });
});
