// A pool is created with the advisor's help: drives of a folder, proposals, the first of them.

import { browse, check, given, stripewise } from './kit.mjs';

await browse(async (page) => {
  await page.getByRole('link', { name: 'Create a pool' }).click();
  await page.getByLabel('Files of a folder').fill(given.drives);
  await page.getByRole('button', { name: 'List' }).click();
  for (const index of [0, 1, 2, 3]) await page.getByRole('checkbox', { name: `drive${index}.img` }).check();
  await page.getByText('4 drives chosen').waitFor();
  await page.getByRole('button', { name: 'Show proposals' }).click();
  await page.getByRole('button', { name: /Take proposal 1/ }).click({ timeout: 60000 });
  const layout = await page.getByLabel('Layout').inputValue();
  // The form refuses the same as the command line, in its words.
  await page.getByLabel('Name of the pool').fill('<b>');
  await page.getByRole('button', { name: 'Create the pool' }).click();
  await page.getByText('pool name `<b>` contains `<`').waitFor();
  await page.getByLabel('Name of the pool').fill('tank');
  await page.getByLabel('Size, such as').fill('16MiB');
  await page.getByRole('button', { name: 'Create the pool' }).click();
  await page.getByRole('heading', { name: 'tank', level: 1 }).waitFor();
  await page.getByRole('table', { name: 'Volumes of pool tank' }).getByRole('link', { name: 'data' }).waitFor();
  const { pools: [pool] } = JSON.parse(stripewise('pool', 'status', 'tank', '--json'));
  check(pool.volumes[0].layout === layout, `${pool.volumes[0].layout} instead of the proposal's ${layout}`);
  check(pool.drives.length === 4, 'all four drives');
});
