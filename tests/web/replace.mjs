// A drive vanishes: the console shows it within two seconds; it is replaced, and the rebuild is seen
// to its end.

import { renameSync } from 'node:fs';
import { browse, check, given } from './kit.mjs';

await browse(async (page, open) => {
  const other = await open();
  await page.getByRole('link', { name: 'tank' }).click();
  await page.getByText('online').first().waitFor();
  renameSync(`${given.drives}/drive1.img`, `${given.drives}/gone`);
  const begin = Date.now();
  const row = page.getByRole('region', { name: 'Table of drives' }).getByRole('row').filter({ hasText: 'drive1.img' });
  await row.getByText('missing').waitFor();
  const took = Date.now() - begin;
  check(took < 2000 + Number(given.slack), `seen after ${took} ms`);
  await page.getByText('no further drive may be lost').waitFor();
  await page.getByRole('button', { name: 'Replace the drive' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('or a path').fill(`${given.drives}/drive4.img`);
  await dialog.getByText(/stripewise pool replace tank [0-9a-f-]+ .*drive4.img/).waitFor();
  await dialog.getByRole('button', { name: 'Replace', exact: true }).click();
  await page.getByText('is being replaced').waitFor();
  await page.getByText('one more drive may be lost').waitFor({ timeout: 30000 });
  await row.waitFor({ state: 'detached', timeout: 30000 });
  await page.getByRole('region', { name: 'Table of events' }).getByText(/rebuild/i).first().waitFor();
  // The other session saw it without doing anything.
  await other.getByText('one more drive may be lost').waitFor();
});
