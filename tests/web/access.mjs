// Ways to volumes: the addresses of exports, their clients, mounts that begin and end, and the
// channels of alerts, each of them also with the role that may only look.

import { spawn } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { accessible, browse, check, given, stripewise } from './kit.mjs';

const mounts = () => JSON.parse(stripewise('pool', 'status', '--json')).pools[0].mounts;

await browse(async (page, open) => {
  const dialog = page.getByRole('dialog');
  await page.getByText('Command: true').waitFor();
  await page.getByRole('button', { name: 'Test alerts' }).click();
  await dialog.getByText('alert test').waitFor();
  await dialog.getByRole('button', { name: 'Send' }).click();
  await page.getByText('true: sent').waitFor();
  await accessible(page, 'channels of alerts');

  const base = given.folder.replace(/\/$/, '');
  const address = `nbd+unix:///tank/a?socket=${base}/nbd.sock`;
  await page.getByRole('link', { name: 'tank' }).click();
  await page.getByText('nbd+unix:///tank/VOL?socket=').waitFor();
  await page.getByRole('link', { name: 'a', exact: true }).click();
  await page.getByText(address).waitFor();
  await page.getByText('no client').waitFor();
  const client = spawn('qemu-io', ['-f', 'raw', address], { stdio: ['pipe', 'ignore', 'ignore'] });
  await page.getByText(/connection \d+\)/).waitFor();
  client.stdin.end('quit\n');
  await page.getByText('no client').waitFor();

  const folder = `${base}/mnt`;
  mkdirSync(folder);
  writeFileSync(`${folder}/file`, '');
  await page.getByRole('link', { name: 'tank' }).click();
  await page.getByRole('button', { name: 'Mount', exact: true }).click();
  await dialog.getByLabel(/Mount point/).fill(folder);
  await dialog.getByText(`mount tank ${folder}`).waitFor();
  await dialog.getByLabel('What').selectOption('tank/a');
  await dialog.getByText(`mount tank/a ${folder} --fs xfs`).waitFor();
  await dialog.getByLabel('What').selectOption('tank');
  await dialog.getByRole('button', { name: 'Mount', exact: true }).click();
  await dialog.getByText('the folder is not empty').waitFor();
  check(mounts().length === 0, 'what is refused is not mounted');
  await dialog.getByLabel(/Mount point/).fill(`${folder}/below`);
  mkdirSync(`${folder}/below`);
  await dialog.getByRole('button', { name: 'Mount', exact: true }).click();
  await dialog.waitFor({ state: 'detached' });
  const table = page.getByRole('region', { name: 'Table of mounts' });
  await table.getByText('mounted').waitFor();
  check(mounts()[0]?.folder === `${folder}/below`, 'it is mounted');
  await accessible(page, 'mounts');

  const reader = await open(given.reader);
  await reader.getByText('The role operate sees the channels.').waitFor();
  await reader.getByRole('link', { name: 'tank' }).click();
  await reader.getByRole('region', { name: 'Table of mounts' }).getByText('mounted').waitFor();
  check(await reader.getByRole('button', { name: /ount/ }).count() === 0, 'a reader is offered mounts');

  await page.getByRole('button', { name: 'Unmount tank' }).click();
  await dialog.getByText(`umount ${folder}/below`).waitFor();
  await dialog.getByRole('button', { name: 'Unmount', exact: true }).click();
  await dialog.waitFor({ state: 'detached' });
  await page.getByText('Nothing of the pool is mounted').waitFor();
  await reader.getByText('Nothing of the pool is mounted').waitFor();
  check(mounts().length === 0, 'it is unmounted');
});
