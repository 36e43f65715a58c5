// A run of the laboratory is watched: its first figures are there while it goes on, and it is in the
// list when it is done.

import { browse, check, given } from './kit.mjs';

await browse(async (page) => {
  await page.getByRole('link', { name: 'Laboratory' }).click();
  await page.getByRole('button', { name: 'Measure a target' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel(/Method/).selectOption('crystaldiskmark');
  await dialog.getByLabel(/Target/).fill(given.folder);
  await dialog.getByLabel(/Size to use/).fill('16MiB');
  await dialog.getByLabel(/Seconds/).fill('0.2');
  await dialog.getByRole('button', { name: 'Measure' }).click();
  const running = page.getByRole('region', { name: 'In progress' });
  await running.waitFor();
  await running.getByRole('img', { name: /SEQ1M_Q1T1_read/ }).waitFor({ timeout: 60000 });
  check(await running.isVisible(), 'the figure came after the end');
  await running.waitFor({ state: 'detached', timeout: 120000 });
  const row = page.getByRole('region', { name: 'Table of runs' }).getByRole('row').nth(1);
  await row.getByRole('button', { name: /Show/ }).click();
  await page.getByRole('table', { name: /crystaldiskmark on/ }).waitFor();
  const [report] = await Promise.all([page.waitForEvent('download'), row.getByRole('link', { name: /Report/ }).click()]);
  check(await report.failure() === null, 'the report came');
});
