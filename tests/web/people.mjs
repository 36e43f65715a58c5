// Each page in both themes and at three widths: axe finds nothing, nothing is wider than the window,
// and the keyboard reaches the content.

import { accessible, browse, check } from './kit.mjs';

const PAGES = { overview: '#/', pool: '#/pool/tank', volume: '#/pool/tank/volume/a', create: '#/create', lab: '#/lab', model: '#/model' };

for (const scheme of ['light', 'dark']) {
  for (const width of [360, 1280, 3840]) {
    await browse(async (page) => {
      for (const [name, address] of Object.entries(PAGES)) {
        const what = `${name}, ${scheme}, ${width}`;
        await page.evaluate((to) => { location.hash = to; }, address);
        await page.getByRole('heading', { level: 1 }).waitFor();
        if (name === 'create') await page.getByText(/Looking at drives/).waitFor({ state: 'detached' });
        if (name === 'pool') await page.getByText(/redundancy left, \d+ row/).first().waitFor();
        if (width !== 3840) await accessible(page, what);
        const wider = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
        check(wider <= 0, `${what}: ${wider} px wider than the window`);
      }
      await page.evaluate(() => { location.hash = '#/pool/tank'; });
      await page.getByRole('button', { name: 'Add drives' }).click();
      await page.getByText(/Looking at drives/).waitFor({ state: 'detached' });
      if (width !== 3840) await accessible(page, `dialog, ${scheme}, ${width}`);
      await page.keyboard.press('Escape');
      check(await page.getByRole('dialog').count() === 0, 'Escape closes the dialog');
    }, { width, scheme });
  }
}

await browse(async (page) => {
  for (let step = 0; step < 20; step += 1) {
    const name = await page.evaluate(() => document.activeElement?.textContent);
    if (name === 'tank') break;
    check(step < 19, 'the keyboard reaches the pool');
    await page.keyboard.press('Tab');
  }
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'tank', level: 1 }).waitFor();
});
