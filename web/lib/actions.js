// Actions on pools, drives and volumes: the form of each, the request, and the command line
// that does the same.

import { call, part, poolPath, post, volumePath } from './api.js';
import { ask } from './dialog.js';
import { refresh } from './live.js';
import { go } from './router.js';
import { size } from './units.js';

/** @typedef {import('./dialog.js').Action} Action */

const FORCE = {
  name: 'force', kind: /** @type {const} */ ('check'), label: 'Overwrite drives that hold data',
  help: 'Everything on them is lost. Needs the role admin.',
};
const LAYOUTS = ['raid5', 'raid6', 'raid7', 'raid10', 'raid1', 'raid50', 'raid60', 'raid4', 'raid0', 'single'];
/** @type {[string, string][]} */
export const LAYOUT_OPTIONS = LAYOUTS.map((name) => [name, name]);

const drivePath = (/** @type {string} */ pool, /** @type {any} */ drive) => `${poolPath(pool)}/drives/${part(drive.id)}`;

/** Runs what needs no form, after a question. @param {Action} action */
const question = (action) => () => ask(action);

// --- pools -----------------------------------------------------------------------------------------

/** @param {string} pool */
export const scrub = (pool) => question({
  title: `Scrub pool ${pool}`, verb: 'Scrub',
  text: 'Every stripe is read, compared and repaired. Clients go before it.',
  words: () => ['pool', 'scrub', pool],
  run: () => post(`${poolPath(pool)}/scrub`),
  done: () => `The scrub of pool ${pool} is queued.`,
});

/** @param {string} pool */
export const rebalance = (pool) => question({
  title: `Rebalance pool ${pool}`, verb: 'Rebalance',
  text: 'Volumes are spread over all data drives, so that free space can be used.',
  words: () => ['pool', 'rebalance', pool],
  run: () => post(`${poolPath(pool)}/rebalance`),
});

/** @param {string} pool */
export const stopRebalance = (pool) => question({
  title: `Stop the rebalance of pool ${pool}`, verb: 'Stop',
  text: 'Data already moved stays where it is.',
  words: () => ['pool', 'rebalance', pool, '--stop'],
  run: () => call('DELETE', `${poolPath(pool)}/rebalance`),
});

/** @param {string} pool @param {any} [drive] */
export const clear = (pool, drive) => question({
  title: drive ? `Clear the errors of ${drive.path}` : `Clear errors and notes of pool ${pool}`, verb: 'Clear',
  text: 'Error counters are reset, and the conditions that the status reports are acknowledged.',
  words: () => ['pool', 'clear', pool, drive?.id],
  run: () => post(`${poolPath(pool)}/clear${drive ? `?drive=${part(drive.id)}` : ''}`),
});

/** @param {string} pool @param {string} [role] */
export const addDrives = (pool, role = 'data') => question({
  title: `Add drives to pool ${pool}`, verb: 'Add',
  fields: [
    { name: 'drives', kind: 'drives', label: 'Drives' },
    { name: 'role', kind: 'select', label: 'Role', value: role, options: [
      ['data', 'data: holds volumes'], ['spare', 'spare: replaces a failed drive by itself'],
      ['journal', 'journal: holds journals'], ['fast', 'fast: holds frequently used data']] },
    FORCE,
  ],
  words: ({ drives, role: as, force }) => ['pool', 'add', pool, ...drives, '--as', as, force && '--force'],
  run: ({ drives, role: as, force }) => post(`${poolPath(pool)}/drives`, { drives, role: as, force }),
  done: (_, { drives }) => `${drives.length} added to pool ${pool}.`,
});

/** @param {string} pool */
export const rename = (pool) => question({
  title: `Rename pool ${pool}`, verb: 'Rename',
  text: 'Clients have to use the new name.',
  fields: [{ name: 'name', label: 'New name', value: pool, required: true }],
  words: ({ name }) => ['pool', 'rename', pool, name],
  run: ({ name }) => post(`${poolPath(pool)}/rename`, { name }),
  then: (_, { name }) => go('pool', name),
});

/** @param {string} pool */
export const exportPool = (pool) => question({
  title: `Export pool ${pool}`, verb: 'Export',
  text: 'The pool is no longer served here, and its drives can be used on another host. Nothing is lost; import brings it back.',
  words: () => ['pool', 'export', pool],
  run: () => post(`${poolPath(pool)}/export`),
  then: () => go(),
});

/** @param {any} pool */
export const destroy = (pool) => question({
  title: `Destroy pool ${pool.name}`, verb: 'Destroy', type: pool.name,
  loss: `everything in pool ${pool.name}: ${volumesInWords(pool)}. Its ${pool.drives.length} drives are free then. Until they are used again, "pool import --destroyed" brings it back.`,
  words: () => ['pool', 'destroy', pool.name, '--yes'],
  run: () => call('DELETE', `${poolPath(pool.name)}?yes=true`),
  done: () => `Pool ${pool.name} is destroyed.`,
  then: () => go(),
});

function volumesInWords(/** @type {any} */ pool) {
  if (!pool.volumes.length) return 'it has no volumes';
  const one = (/** @type {any} */ volume) => `volume ${volume.name} (${size(volume.written_bytes ?? volume.capacity_bytes)} written)`;
  return pool.volumes.map(one).join(', ');
}

export const importPools = question({
  title: 'Import pools', verb: 'Search',
  text: 'Finds pools on block devices, or on the drives of a folder, and imports all that no other host uses.',
  fields: [
    { name: 'folder', label: 'Folder with drives (empty: all block devices)' },
    { name: 'pool', label: 'Only this pool (empty: all)' },
    { name: 'newName', label: 'New name', shown: ({ pool }) => pool !== '' },
    { name: 'force', kind: 'check', label: 'Take it from the host that has it', help: 'A pool must never be used by two hosts.' },
  ],
  words: ({ folder, pool, newName, force }) =>
    ['pool', 'import', ...(folder ? ['--dir', folder] : []), pool || '--all', ...(pool && newName ? ['--as', newName] : []), force && '--force'],
  run: ({ folder, pool, newName, force }) => post('/api/v1/import', {
    folders: folder ? [folder] : [], ...(pool ? { pool } : { all: true }), ...(pool && newName ? { new_name: newName } : {}), force,
  }),
  done: (answer) => answer.pools.map((/** @type {any} */ found) =>
    `${found.name}: ${found.imported ? 'imported' : found.held_back ?? 'not imported'}`).join('; '),
});

export const testAlerts = question({
  title: 'Send a test alert', verb: 'Send',
  text: 'A test alert goes through every channel that the daemon has (serve --alert-command, --alert-mail, --alert-webhook).',
  words: () => ['alert', 'test'],
  run: () => post('/api/v1/alerts/test'),
  done: (answer) => answer.sent.map((/** @type {any} */ one) => `${one.way}: ${one.error ?? 'sent'}`).join('; '),
});

/** Mounts the file system on a volume, or volumes as files. @param {any} pool @param {string} [volume] */
export const mount = (pool, volume) => question({
  title: volume ? `Mount volume ${pool.name}/${volume}` : `Mount of pool ${pool.name}`, verb: 'Mount',
  text: 'The daemon mounts on its own host, and mounts again whenever it starts. An empty volume gets a new file system.',
  fields: [
    { name: 'target', kind: 'select', label: 'What', value: volume ? `${pool.name}/${volume}` : pool.name, options: [
      [pool.name, 'all volumes, as files'],
      ...pool.volumes.map((/** @type {any} */ one) => /** @type {[string, string]} */ ([`${pool.name}/${one.name}`, `the file system on ${one.name}`]))] },
    { name: 'system', kind: 'select', label: 'File system', value: 'xfs', options: [['xfs', 'XFS'], ['ext4', 'ext4'], ['btrfs', 'btrfs']],
      shown: ({ target }) => target.includes('/') },
    { name: 'folder', label: 'Mount point: an empty folder', required: true },
  ],
  words: ({ target, system, folder }) => ['mount', target, folder || 'DIR', ...(target.includes('/') ? ['--fs', system] : [])],
  run: async ({ target, system, folder }) => {
    await post('/api/v1/mounts', { target, folder, ...(target.includes('/') ? { file_system: system } : {}) });
    await refresh(pool.name);
  },
  done: (_, { target, folder }) => `${target} is mounted at ${folder}.`,
});

/** @param {any} mount */
export const unmount = (mount) => question({
  title: `Unmount ${mount.target}`, verb: 'Unmount',
  text: `Programs can no longer use ${mount.folder}, and it is not mounted again. Nothing is lost.`,
  words: () => ['umount', mount.folder],
  run: async () => {
    await call('DELETE', `/api/v1/mounts?target=${part(mount.folder)}`);
    await refresh(mount.target.split('/')[0]);
  },
  done: () => `${mount.target} is unmounted.`,
});

// --- drives ----------------------------------------------------------------------------------------

/** @param {any} pool @param {any} drive */
export const replace = (pool, drive) => question({
  title: `Replace ${drive.path}`, verb: 'Replace',
  text: `The new drive is rebuilt from the others. ${drive.path} leaves the pool when that is done.`,
  fields: [
    { name: 'with', kind: 'drive', label: 'New drive', extra: { pool, least: drive.capacity_bytes } },
    { ...FORCE, label: 'Overwrite the new drive if it holds data' },
  ],
  words: ({ with: other, force }) => ['pool', 'replace', pool.name, drive.id, other || 'NEW-DRIVE', force && '--force'],
  run: ({ with: other, force }) => post(`${drivePath(pool.name, drive)}/replace`, { with: other, force }),
  done: () => `${drive.path} is being replaced.`,
});

/** @param {string} pool @param {any} drive */
export const offline = (pool, drive) => question({
  title: `Take ${drive.path} offline`, verb: 'Take offline',
  text: 'The drive is not used until it is brought online. Volumes on it have less redundancy for that time.',
  words: () => ['pool', 'offline', pool, drive.id],
  run: () => post(`${drivePath(pool, drive)}/offline`),
});

/** @param {string} pool @param {any} drive */
export const online = (pool, drive) => question({
  title: `Bring ${drive.path} online`, verb: 'Bring online',
  text: 'Regions that changed in its absence are copied to it.',
  words: () => ['pool', 'online', pool, drive.id],
  run: () => post(`${drivePath(pool, drive)}/online`),
});

/** @param {string} pool @param {any} drive */
export const retire = (pool, drive) => question({
  title: `Retire ${drive.path}`, verb: 'Retire',
  text: 'The drive is evacuated to the others, and leaves the pool when it is empty. No redundancy is missing on the way.',
  words: () => ['pool', 'retire', pool, drive.id],
  run: () => post(`${drivePath(pool, drive)}/retire`),
});

/** @param {string} pool @param {any} drive */
export const remove = (pool, drive) => question({
  title: `Remove ${drive.path}`, verb: 'Remove',
  text: 'A drive that holds nothing of the pool leaves it.',
  words: () => ['pool', 'remove', pool, drive.id],
  run: () => call('DELETE', drivePath(pool, drive)),
});

/** @param {any} drive */
export const locate = (drive) => question({
  title: `Light of ${drive.path}`, verb: 'Switch',
  text: `Switches the light of the slot ${drive.slot ?? '(slot unknown)'}, so that the drive is found in the enclosure.`,
  fields: [{ name: 'on', kind: 'select', label: 'Light', value: 'on', options: [['on', 'on'], ['off', 'off']] }],
  words: ({ on }) => ['drive', 'locate', drive.id, on],
  run: ({ on }) => post('/api/v1/drives/locate', { drive: drive.id, on: on === 'on' }),
  done: (_, { on }) => `The light of ${drive.path} is ${on}.`,
});

// --- volumes ---------------------------------------------------------------------------------------

/** @param {any} pool */
export const createVolume = (pool) => question({
  title: `Create a volume in pool ${pool.name}`, verb: 'Create',
  fields: [
    { name: 'name', label: 'Name', required: true },
    { name: 'layout', kind: 'select', label: 'Layout', value: 'raid5', options: LAYOUT_OPTIONS },
    { name: 'columns', kind: 'number', label: 'Columns (empty: as fits the drives)' },
    { name: 'groups', kind: 'number', label: 'Groups', shown: ({ layout }) => /0$/.test(layout) && layout.length === 6 },
    { name: 'size', label: 'Size, such as 500GiB (empty: all free space)' },
    { name: 'interleave', label: 'Interleave, such as 64KiB (empty: as fits the drives)' },
    { name: 'thin', kind: 'check', label: 'Thin: allocate space only when it is written' },
    { name: 'writeBack', kind: 'select', label: 'Small writes are acknowledged', value: '', options: [
      ['', 'as fits the layout'], ['true', 'from the journal (write-back)'], ['false', 'in place (write-through)']] },
    { name: 'checksums', kind: 'select', label: 'Checksums', value: '', options: [['', 'on'], ['false', 'off']] },
    { name: 'pin', kind: 'select', label: 'Tier', value: '', options: [['', 'by use'], ['fast', 'fast drives'], ['slow', 'data drives']] },
  ],
  words: (values) => volumeWords(pool.name, values),
  run: async (values) => post(`${poolPath(pool.name)}/volumes`, {
    name: values.name, layout: values.layout, thin: values.thin,
    ...(values.columns === '' ? {} : { columns: Number(values.columns) }),
    ...(values.groups === '' ? {} : { groups: Number(values.groups) }),
    ...(values.size === '' ? {} : { size_bytes: bytes(values.size) }),
    ...(values.interleave === '' ? {} : { interleave_bytes: bytes(values.interleave) }),
    ...(values.writeBack === '' ? {} : { write_back: values.writeBack === 'true' }),
    ...(values.checksums === '' ? {} : { checksums: false }),
    ...(values.pin === '' ? {} : { pin: values.pin }),
  }),
  done: (answer, { name }) => `Volume ${pool.name}/${name} is created.`,
});

/** @param {string} pool @param {Record<string, any>} values */
export function volumeWords(pool, values) {
  return ['volume', 'create', `${pool}/${values.name || 'VOL'}`, '--layout', values.layout,
    ...(values.columns ? ['--columns', String(values.columns)] : []),
    ...(values.groups ? ['--groups', String(values.groups)] : []),
    ...(values.interleave ? ['--interleave', values.interleave] : []),
    ...(values.size ? ['--size', values.size] : []),
    values.thin && '--thin',
    values.writeBack === 'true' && '--write-back', values.writeBack === 'false' && '--write-through',
    ...(values.checksums === 'false' ? ['--checksums', 'off'] : []),
    ...(values.pin ? ['--pin', values.pin] : [])];
}

/** @param {any} volume */
export const resize = (volume) => question({
  title: `Resize volume ${volume.pool}/${volume.name}`, verb: 'Resize',
  text: `Its size is ${size(volume.capacity_bytes)}. Making it smaller is refused where data lies beyond the new end.`,
  fields: [{ name: 'size', label: 'New size, such as 500GiB', required: true }],
  words: (values) => ['volume', 'resize', `${volume.pool}/${volume.name}`, values.size || 'SIZE'],
  run: async (values) => call('PATCH', volumePath(volume.pool, volume.name), { size_bytes: bytes(values.size) }),
});

/** @param {any} volume */
export const convert = (volume) => question({
  title: `Convert volume ${volume.pool}/${volume.name}`, verb: 'Convert',
  text: `Its layout is ${volume.layout} over ${volume.columns} drives. The volume stays in use during the conversion.`,
  fields: [
    { name: 'layout', kind: 'select', label: 'New layout', value: volume.layout, options: LAYOUT_OPTIONS },
    { name: 'columns', kind: 'number', label: 'Columns (empty: as fits the drives)' },
    { name: 'groups', kind: 'number', label: 'Groups', shown: ({ layout }) => /^raid[56]0$/.test(layout) },
    { name: 'interleave', label: 'Interleave (empty: as fits the drives)' },
    { name: 'yes', kind: 'check', label: 'Accept a layout that survives the loss of fewer drives' },
  ],
  words: (values) => ['volume', 'convert', `${volume.pool}/${volume.name}`, '--layout', values.layout,
    ...(values.columns ? ['--columns', values.columns] : []), ...(values.groups ? ['--groups', values.groups] : []),
    ...(values.interleave ? ['--interleave', values.interleave] : []), values.yes && '--yes'],
  run: async (values) => call('PATCH', volumePath(volume.pool, volume.name), { convert: {
    layout: values.layout, yes: values.yes,
    ...(values.columns === '' ? {} : { columns: Number(values.columns) }),
    ...(values.groups === '' ? {} : { groups: Number(values.groups) }),
    ...(values.interleave === '' ? {} : { interleave_bytes: bytes(values.interleave) }),
  } }),
});

/** @param {any} volume */
export const cancelConversion = (volume) => question({
  title: `Cancel the conversion of ${volume.pool}/${volume.name}`, verb: 'Cancel the conversion',
  text: `The volume returns to ${volume.conversion?.from_layout ?? 'its previous layout'}; it stays in use.`,
  words: () => ['volume', 'convert', `${volume.pool}/${volume.name}`, '--cancel'],
  run: () => call('PATCH', volumePath(volume.pool, volume.name), { cancel_conversion: true }),
});

/** @param {any} volume */
export const pin = (volume) => question({
  title: `Pin volume ${volume.pool}/${volume.name}`, verb: 'Pin',
  fields: [{ name: 'pin', kind: 'select', label: 'Tier', value: volume.pin, options: [
    ['none', 'by use'], ['fast', 'fast drives'], ['slow', 'data drives']] }],
  words: (values) => ['volume', 'pin', `${volume.pool}/${volume.name}`, values.pin],
  run: (values) => call('PATCH', volumePath(volume.pool, volume.name), { pin: values.pin }),
});

/** @param {any} volume */
export const deleteVolume = (volume) => question({
  title: `Delete volume ${volume.pool}/${volume.name}`, verb: 'Delete', type: `${volume.pool}/${volume.name}`,
  loss: `all ${size(volume.written_bytes ?? volume.capacity_bytes)} written to the volume. Clients that use it are disconnected.`,
  words: () => ['volume', 'delete', `${volume.pool}/${volume.name}`, '--yes'],
  run: () => call('DELETE', `${volumePath(volume.pool, volume.name)}?yes=true`),
  done: () => `Volume ${volume.pool}/${volume.name} is deleted.`,
  then: () => go('pool', volume.pool),
});

const POWERS = { '': 0, k: 1, m: 2, g: 3, t: 4, p: 5 };

/** Bytes of a size as the command line takes it: 64K, 64KiB, 1.5TB. @param {string} text */
export function bytes(text) {
  const found = /^\s*(\d+)(?:\.(\d+))?\s*([kmgtp]?)(ib|b)?\s*$/i.exec(text);
  const unit = found?.[3].toLowerCase() ?? '';
  if (!found || (unit === '' && found[4]?.toLowerCase() === 'ib')) {
    throw new Error(`\`${text}\` is not a size; write a number and a unit, as in 4096, 64K, 64KiB, 1.5TB`);
  }
  const base = found[4]?.toLowerCase() === 'b' ? 1000n : 1024n;
  const fraction = found[2] ?? '';
  const scale = 10n ** BigInt(fraction.length);
  const scaled = BigInt(found[1] + fraction) * base ** BigInt(POWERS[/** @type {keyof typeof POWERS} */ (unit)]);
  if (scaled % scale !== 0n) throw new Error(`\`${text}\` is not a whole number of bytes`);
  return Number(scaled / scale);
}

/** The action that the status names, as a button; `null` if it is none of these. @param {any} pool */
export function nextAction(pool) {
  const [program, object, verb, name, id] = pool.action.split(/\s+/);
  if (program !== 'stripewise') return null;
  const drive = pool.drives.find((/** @type {any} */ drive) => drive.id === id);
  if (object === 'pool' && name === pool.name) {
    if (verb === 'replace' && drive) return { text: 'Replace the drive', role: 'operate', run: replace(pool, drive) };
    if (verb === 'online' && drive) return { text: 'Bring the drive online', role: 'operate', run: online(pool.name, drive) };
    if (verb === 'remove' && drive) return { text: 'Remove the drive', role: 'operate', run: remove(pool.name, drive) };
    if (verb === 'add') return { text: 'Add a drive', role: 'operate', run: addDrives(pool.name) };
    if (verb === 'scrub') return { text: 'Scrub', role: 'operate', run: scrub(pool.name) };
    if (verb === 'clear') return { text: 'Clear', role: 'operate', run: clear(pool.name) };
    if (verb === 'rebalance') return { text: 'Rebalance', role: 'operate', run: rebalance(pool.name) };
    if (verb === 'import') return { text: 'Import', role: 'admin', run: importPools };
  }
  const volume = pool.volumes.find((/** @type {any} */ volume) => `${pool.name}/${volume.name}` === name);
  if (object === 'volume' && verb === 'delete' && volume) return { text: 'Delete the volume', role: 'admin', run: deleteVolume(volume) };
  return null;
}
