// Destruction asks for the name; roles decide what is there; a daemon that stops is shown, and comes
// back; names are text.

import { browse, check, given, stripewise } from './kit.mjs';

await browse(async (page, open) => {
  const reader = await open(given.reader);
  await reader.getByRole('link', { name: 'tank' }).click();
  await reader.getByRole('heading', { name: 'Drives' }).waitFor();
  for (const name of ['Scrub', 'Destroy', 'Create a volume', 'Add drives']) {
    check(await reader.getByRole('button', { name }).count() === 0, `a reader is offered ${name}`);
  }
  const refused = await reader.evaluate(async () => {
    const { csrf } = await (await fetch('/console/session')).json();
    return (await fetch('/api/v1/pools/tank/scrub', { method: 'POST', headers: { 'x-csrf-token': csrf } })).status;
  });
  check(refused === 403, `a reader's request: ${refused}`);

  const without = await page.evaluate(async () => (await fetch('/api/v1/pools/tank/scrub', { method: 'POST' })).status);
  check(without === 403, `a change without the CSRF token: ${without}`);
  check(await page.evaluate(() => document.cookie) === '', 'a script reads the cookie');

  await page.getByRole('link', { name: 'tank' }).click();
  // A path with markup is shown as it is.
  await page.getByText('<img src=x onerror=alert(1)>').first().waitFor();
  // The same for a long name in another script, also on a phone.
  await page.getByText('名'.repeat(30)).first().waitFor();
  await page.setViewportSize({ width: 360, height: 800 });
  const wider = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
  check(wider <= 0, `${wider} px wider than the window`);
  await page.getByRole('button', { name: 'Destroy' }).click();
  const dialog = page.getByRole('dialog');
  const destroy = dialog.getByRole('button', { name: 'Destroy', exact: true });
  await dialog.getByText('What is lost').waitFor();
  check(await destroy.isDisabled(), 'destroying needs the name');
  await dialog.getByLabel('Type tank to confirm').fill('tan');
  check(await destroy.isDisabled(), 'the whole name');
  await dialog.getByLabel('Type tank to confirm').fill('tank');
  await destroy.click();
  await page.getByText('There is no pool on this host yet').waitFor();
  await reader.getByText('There is no pool tank on this host').waitFor();
  check(JSON.parse(stripewise('pool', 'list', '--json')).pools.length === 0, 'it is gone');
  await page.getByRole('button', { name: 'Log out' }).click();
  await page.getByLabel('Token').waitFor();
  check(await page.evaluate(async () => (await fetch('/console/session')).status) === 401, 'the session has ended');
});
