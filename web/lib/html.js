// The parts of Preact that pages use, from one place.

import { h } from '../vendor/preact.js';
import htm from '../vendor/htm.js';

export { render, Fragment } from '../vendor/preact.js';
export { useEffect, useRef, useState, useMemo, useId, useLayoutEffect } from '../vendor/hooks.js';
export { signal, computed, effect, batch } from '../vendor/signals.js';

/** Markup as a tagged template: values become text or attributes, never markup. */
export const html = htm.bind(h);
