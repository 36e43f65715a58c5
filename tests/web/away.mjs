// A daemon that stops leaves the last state with its time; the page comes back by itself.

import { browse } from './kit.mjs';
import { spawn } from 'node:child_process';
import { given } from './kit.mjs';

await browse(async (page) => {
  await page.getByRole('link', { name: 'tank' }).waitFor();
  process.kill(Number(given.daemon), 'SIGTERM');
  await page.getByText(/disconnected, last state of/).waitFor();
  await page.getByRole('link', { name: 'tank' }).waitFor();
  const again = spawn(given.program, ['serve', '--http', given.port, '--http-token-file', given.tokens], { stdio: 'ignore' });
  try {
    await page.getByText('live', { exact: true }).waitFor();
    await page.getByRole('link', { name: 'tank' }).waitFor();
  } finally {
    again.kill('SIGTERM');
    await new Promise((ended) => again.on('exit', ended));
  }
});
