// Addresses of pages, behind `#`: the daemon serves one page, and names with any letters fit.

import { signal } from './html.js';

/** Parts of the address: [] is the overview, ['pool', 'tank'] a pool. */
export const route = signal(parse());

function parse() {
  const parts = location.hash.replace(/^#?\/?/, '').split('/');
  return parts.filter((part) => part !== '').map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
}

window.addEventListener('hashchange', () => {
  route.value = parse();
});

/** The address of a page. @param {...string} parts */
export const to = (...parts) => `#/${parts.map(encodeURIComponent).join('/')}`;

/** Goes to a page. @param {...string} parts */
export function go(...parts) {
  location.hash = to(...parts);
}
