// Numbers as the command line writes them: sizes in powers of 1024, rates in MB/s, durations in
// words. Times are local.

const UNITS = ['KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB'];

/** @param {number} bytes @returns {string} such as `1008 MiB` */
export function size(bytes) {
  if (!(bytes >= 1024)) return `${bytes} B`;
  let [power, value] = [1, bytes / 1024];
  for (; value >= 1024 && power < UNITS.length; power += 1) value /= 1024;
  return `${value.toFixed(2).replace(/\.?0+$/, '')} ${UNITS[power - 1]}`;
}

/** @param {number|null|undefined} seconds @returns {string} such as `3 min 20 s` */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds) || seconds < 0) return 'unknown';
  const total = Math.ceil(seconds);
  const two = (/** @type {number} */ number) => String(number).padStart(2, '0');
  const minutes = Math.floor(total / 60) % 60;
  if (total < 60) return `${total} s`;
  if (total < 3600) return `${minutes} min ${two(total % 60)} s`;
  if (total < 86400) return `${Math.floor(total / 3600)} h ${two(minutes)} min`;
  return `${Math.floor(total / 86400)} d ${Math.floor(total / 3600) % 24} h`;
}

/** @param {number} number @returns {string} with three significant digits */
export function short(number) {
  if (number === 0) return '0';
  if (Math.abs(number) >= 100) return Math.round(number).toLocaleString('en-GB');
  return Math.abs(number) >= 10 ? number.toFixed(1) : number.toFixed(2);
}

/** @param {number} rate @returns {string} */
export const megabytes = (rate) => `${short(rate)} MB/s`;

/** @param {number|null|undefined} us @returns {string} such as `1.20 ms` */
export function latency(us) {
  if (us === null || us === undefined) return '–';
  if (us < 1000) return `${short(us)} µs`;
  if (us < 1e6) return `${short(us / 1000)} ms`;
  return `${short(us / 1e6)} s`;
}

/** @param {number} part @param {number} all @returns {number} percent, 0 to 100 */
export const percent = (part, all) => (all > 0 ? Math.min(100, (part * 100) / all) : 0);

const MOMENT = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'medium' });
const CLOCK = new Intl.DateTimeFormat(undefined, { timeStyle: 'medium' });

/** @param {number} unixMs @returns {string} local date and time */
export const moment = (unixMs) => MOMENT.format(new Date(unixMs));
/** @param {number} unixMs @returns {string} local time */
export const clock = (unixMs) => CLOCK.format(new Date(unixMs));

/** Above this a probability is shown without `1 in N`. */
const OFTEN = 0.3;

/** @param {number} percent @returns {string} with two digits, without an exponent */
function inPercent(percent) {
  if (percent === 0) return '0 %';
  if (percent >= 99.5 && percent < 100) return 'over 99 %';
  if (percent < 1e-7) return 'under 0.0000001 %';
  const decimals = percent >= 10 ? 0 : Math.max(0, 1 - Math.floor(Math.log10(percent)));
  const text = percent.toFixed(decimals);
  return `${text.includes('.') ? text.replace(/0+$/, '').replace(/\.$/, '') : text} %`;
}

/** @param {number} probability of data loss within a year @returns {string} such as `0.009 % (1 in 11,000)` */
export function chance(probability) {
  const shown = inPercent(probability * 100);
  if (probability === 0 || probability >= OFTEN) return shown;
  const one = 1 / probability;
  const unit = 10 ** Math.max(0, Math.floor(Math.log10(one)) - 1);
  return `${shown} (1 in ${(Math.round(one / unit) * unit).toLocaleString('en-GB')})`;
}

/** @param {number} count @param {string} noun @returns {string} such as `2 drives` */
export const counted = (count, noun) => `${count} ${noun}${count === 1 ? '' : 's'}`;

/** Words of a command line for a shell. @param {string[]} words @returns {string} */
export function shell(words) {
  const quoted = (/** @type {string} */ word) =>
    /^([A-Za-z0-9_./:=@%+,-]+|&&)$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
  return words.map(quoted).join(' ');
}
