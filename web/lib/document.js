// A document of the daemon that no stream keeps current: read when a part of a page opens.

import { useEffect, useState } from './html.js';
import { get } from './api.js';

/** The document at a path, read again where `keys` change; `null` until it is there.
 * @param {string} path @param {any[]} [keys] @returns {any} */
export function useDocument(path, keys = []) {
  const [found, setFound] = useState(/** @type {any} */ (null));
  useEffect(() => {
    let isCurrent = true;
    get(path).then((document) => isCurrent && setFound(document), () => {});
    return () => {
      isCurrent = false;
    };
  }, [path, ...keys]);
  return found;
}
