// A browser for the tests of the web console: the system's Chromium, through Playwright. What the
// test was started for is in CONSOLE_TEST (crates/stripewise/tests/it/console.rs).

import { execFileSync } from 'node:child_process';
import { createRequire } from 'node:module';

/** @type {{ url: string, token: string, tools: string, folder: string, program: string, [key: string]: string }} */
export const given = JSON.parse(process.env.CONSOLE_TEST);
const require = createRequire(`${given.tools}/node_modules/`);
const { chromium } = require('playwright-core');
const axe = require.resolve('axe-core/axe.min.js');

/** Runs the program beside the daemon. Exit code 3 is that of a degraded pool. */
export function stripewise(...words) {
  try {
    return execFileSync(given.program, words, { cwd: given.folder, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
  } catch (failure) {
    if (failure.status !== 3) throw failure;
    return failure.stdout;
  }
}

export function check(is, text) {
  if (!is) throw new Error(text);
}

/** Opens the console, and closes the browser when `work` is done. Whatever a page logs as an error, a
 * violation of its policy among them, fails the test; so does a request to another host. */
export async function browse(work, { token = given.token, width = 1280, height = 900, scheme = 'light' } = {}) {
  const browser = await chromium.launch({
    executablePath: given.chromium, args: ['--no-sandbox', '--disable-dev-shm-usage'],
  });
  const wrong = [];
  const open = async (secret = token) => {
    const context = await browser.newContext({ viewport: { width, height }, colorScheme: scheme });
    context.setDefaultTimeout(15000);
    const page = await context.newPage();
    // The browser also logs refusals of the daemon, and its end.
    page.on('console', (message) => {
      const isRefusal = /the server responded with a status|ERR_CONNECTION|ERR_INCOMPLETE|ERR_EMPTY/.test(message.text());
      if (message.type() === 'error' && !isRefusal) wrong.push(message.text());
    });
    page.on('pageerror', (error) => wrong.push(String(error)));
    page.on('request', (request) => {
      if (!request.url().startsWith(given.url)) wrong.push(`a request to ${request.url()}`);
    });
    await page.goto(given.url);
    if (secret) {
      await page.getByLabel('Token').fill(secret);
      await page.getByRole('button', { name: 'Log in' }).click();
      await page.getByText('live', { exact: true }).waitFor();
    }
    return page;
  };
  try {
    await work(await open(), open);
    check(wrong.length === 0, `the page complained: ${wrong.join('\n')}`);
  } catch (failure) {
    for (const context of browser.contexts()) {
      for (const page of context.pages()) {
        const alerts = await page.getByRole('alert').allTextContents().catch(() => []);
        console.error(`at ${page.url()}; the page says: ${alerts.join('; ') || 'nothing'}`);
      }
    }
    throw failure;
  } finally {
    await browser.close();
  }
}

/** Fails where axe finds something in the page. */
export async function accessible(page, what) {
  // The policy allows no script but the console's own, so axe comes through the debugger.
  await page.evaluate(require('node:fs').readFileSync(axe, 'utf8'));
  const { violations } = await page.evaluate(() => window.axe.run({ resultTypes: ['violations'] }));
  const found = violations.map((one) => `${one.id}: ${one.help}\n  ${one.nodes.map((node) => node.html.slice(0, 200)).join('\n  ')}`);
  check(found.length === 0, `axe, ${what}:\n${found.join('\n')}`);
}
