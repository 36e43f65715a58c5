// Each action of the pages is done once, and its effect looked for on the command line; what the
// command line refuses is refused in its words.

import { browse, check, given, stripewise } from './kit.mjs';

const pool = () => JSON.parse(stripewise('pool', 'status', '--json')).pools[0];

await browse(async (page) => {
  const dialog = page.getByRole('dialog');
  const act = async (button, fill, verb) => {
    await page.getByRole('button', { name: button, exact: typeof button === 'string' }).first().click();
    await fill?.(dialog);
    await dialog.getByRole('button', { name: verb, exact: true }).click();
    await dialog.waitFor({ state: 'detached' });
  };
  const path = (index) => `${given.drives}/drive${index}.img`;
  const drives = async (form, ...indices) => {
    await form.getByLabel('Files of a folder').fill(given.drives);
    await form.getByRole('button', { name: 'List' }).click();
    for (const index of indices) await form.getByRole('checkbox', { name: `drive${index}.img` }).check();
  };
  await page.getByRole('link', { name: 'tank' }).click();

  // A drive that is in use is listed with the reason.
  await page.getByRole('button', { name: 'Add a spare' }).click();
  await drives(dialog, 3);
  await dialog.getByText(/cannot be used: is a drive of pool tank/).first().waitFor();
  await dialog.getByRole('button', { name: 'Add', exact: true }).click();
  await dialog.waitFor({ state: 'detached' });
  check(pool().drives.some((drive) => drive.role === 'spare' && drive.path === path(3)), 'a spare');
  await act('Add drives', (form) => drives(form, 4), 'Add');
  check(pool().drives.length === 5, 'another drive');

  await page.getByRole('button', { name: 'Create a volume' }).click();
  await dialog.getByLabel('Name', { exact: true }).fill('b');
  await dialog.getByLabel('Layout').selectOption('raid1');
  await dialog.getByLabel(/^Size/).fill('8 apples');
  await dialog.getByRole('button', { name: 'Create', exact: true }).click();
  await dialog.getByText('`8 apples` is not a size').waitFor();
  await dialog.getByLabel(/^Size/).fill('8MiB');
  await dialog.getByText(/volume create tank\/b --layout raid1 --size 8MiB/).waitFor();
  await dialog.getByRole('button', { name: 'Create', exact: true }).click();
  await page.getByRole('link', { name: 'b', exact: true }).click();
  await page.getByRole('heading', { name: 'tank/b' }).waitFor();
  await page.getByText('equal numbers are copies').waitFor();
  await act('Resize b', (form) => form.getByLabel(/New size/).fill('16MiB'), 'Resize');
  await page.getByText('16 MiB;').waitFor();
  await act('Convert b', (form) => form.getByLabel('New layout').selectOption('raid5'), 'Convert');
  await page.getByText(/raid5 over 4/).waitFor();
  await act('Pin b', (form) => form.getByLabel('Tier').selectOption('slow'), 'Pin');
  await page.getByText('pinned to slow drives').waitFor();
  await act('Delete b', (form) => form.getByLabel(/Type/).fill('tank/b'), 'Delete');
  await page.getByRole('heading', { name: 'tank', level: 1 }).waitFor();
  check(!pool().volumes.some((volume) => volume.name === 'b'), 'the volume is gone');

  const details = async (index, button, verb) => {
    await page.getByRole('button', { name: new RegExp(`Details .*drive${index}.img`) }).click();
    await dialog.getByRole('button', { name: button, exact: true }).click();
    await page.getByRole('dialog', { name: new RegExp(`drive${index}.img`) }).getByRole('button', { name: verb, exact: true }).click();
    await dialog.waitFor({ state: 'detached' });
  };
  const state = (index) => pool().drives.find((drive) => drive.path === path(index))?.state;
  await details(0, 'Offline', 'Take offline');
  check(state(0) === 'offline', 'offline');
  await page.getByText(/offline/).first().waitFor();
  await details(0, 'Online', 'Bring online');
  await page.getByText('one more drive may be lost').waitFor();
  await details(3, 'Remove', 'Remove');
  check(state(3) === undefined, 'the spare is removed');
  // Without a light the refusal says why.
  await page.getByRole('button', { name: /Details .*drive0.img/ }).click();
  await dialog.getByRole('button', { name: 'Locate' }).click();
  await dialog.getByRole('button', { name: 'Switch' }).click();
  await dialog.getByRole('alert').waitFor();
  await page.keyboard.press('Escape');

  await act('Scrub', null, 'Scrub');
  await page.getByText(/verified, no errors found/).waitFor();
  await act('Rebalance', null, 'Rebalance');
  await act('Clear', null, 'Clear');
  await page.getByLabel(/Rebuild priority/).fill('80');
  await page.getByLabel(/Scrub rate/).fill('fast');
  await page.getByRole('button', { name: 'Change settings' }).click();
  await page.getByText(/`fast`/).first().waitFor();
  await page.getByLabel(/Scrub rate/).fill('20MB');
  await page.getByRole('button', { name: 'Change settings' }).click();
  await page.getByText('The settings of pool tank are changed.').waitFor();
  check(pool().rebuild_priority_percent === 80 && pool().patrol_bytes_per_s === 20e6, 'settings');

  await act('Rename', (form) => form.getByLabel('New name').fill('lake'), 'Rename');
  await page.getByRole('heading', { name: 'lake', level: 1 }).waitFor();
  await act('Export', null, 'Export');
  await page.getByText('There is no pool on this host yet').waitFor();
  await act('Import', (form) => form.getByLabel(/Folder/).fill(given.drives), 'Search');
  await page.getByText(/lake: imported/).waitFor();
  await page.getByRole('link', { name: 'lake' }).waitFor();
  await act('Test alerts', null, 'Send').catch(() => {});
});
