import assert from 'node:assert/strict';
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import type { Service } from './service.ts';

/** Whole as it stands in the searcher too: of each place in a group of three what does not depend on the bytes around. */
function inBase64(text: string): string[] {
  return [0, 1, 2].map((shift) => {
    const bytes = Buffer.concat([Buffer.alloc(shift), Buffer.from(text)]);
    return bytes.toString('base64').slice([0, 2, 3][shift], Math.floor((bytes.length * 4) / 3));
  });
}

/**
 * Looks for a text everywhere that a process in the sandbox can read, as it is and within base64. The needle is put
 * together from two halves, so that the program does not find itself. Two proofs that what is there is found: `self`
 * stands in a file, and `control` in the memory of another process alone, which computes it. Each of
 * `programs`, shell commands, is started first and searched while it lives; it says `ready`.
 */
export const searcher = `
const fs = require('node:fs');
const path = require('node:path');
const { createHash, randomUUID } = require('node:crypto');
const { spawn } = require('node:child_process');
const [half, rest, self, ...programs] = process.argv.slice(2);
const seed = randomUUID();
const control = createHash('sha256').update(seed).digest('hex');
${inBase64.toString()}
const formsIn64 = (text) => inBase64(text).map((form) => Buffer.from(form));
const needles = {
  key: [Buffer.from(half + rest), ...formsIn64(half + rest)],
  self: [Buffer.from(self)],
  control: [Buffer.from(control)],
  controlBase64: formsIn64(control),
};
const found = { key: [], self: [], control: [], controlBase64: [] };
const failed = [];
let looked = 0;
let memories = 0;
const searched = new Set();
const longest = Math.max(...Object.values(needles).flat().map((form) => form.length));
// One piece of memory for all that is read: a new one for each would be cleared and paged in first.
const room = Buffer.alloc(1 << 20);
const zeros = Buffer.alloc(room.length);
/** Reads up to \`bytes\` from \`start\` on, piece by piece; what lies across two pieces is found too. */
function look(name, file, start, bytes) {
  const missing = new Set(Object.keys(needles));
  for (let read = 0, kept = 0; read < bytes; ) {
    let more = 0;
    try {
      more = fs.readSync(file, room, kept, Math.min(room.length - kept, bytes - read), start + read);
    } catch (error) {
      // The rest of an area may lie beyond the end of the file that it shows.
      if (read === 0) throw error;
    }
    if (more === 0) break;
    read += more;
    const piece = room.subarray(0, kept + more);
    if (!piece.equals(zeros.subarray(0, piece.length)))
      for (const kind of missing)
        if (needles[kind].some((form) => piece.includes(form))) missing.delete(kind);
    kept = Math.min(longest - 1, piece.length);
    room.copyWithin(0, piece.length - kept, piece.length);
  }
  looked += 1;
  for (const kind of Object.keys(needles)) if (!missing.has(kind)) found[kind].push(name);
}
function lookAtFile(name, most) {
  const file = fs.openSync(name, 'r');
  try { look(name, file, 0, most); } finally { fs.closeSync(file); }
}
function tree(folder, depth) {
  let entries = [];
  try { entries = fs.readdirSync(folder, { withFileTypes: true }); } catch { return; }
  for (const entry of entries) {
    const at = path.join(folder, entry.name);
    try {
      if (entry.isDirectory()) { if (depth > 0) tree(at, depth - 1); }
      else if (entry.isFile() && fs.statSync(at).size < 20e6) lookAtFile(at, 20e6);
    } catch {}
  }
}
// Areas that every program may read; those of the kernel are none.
function areasOf(pid) {
  const areas = new Map();
  let text = '';
  try { text = fs.readFileSync('/proc/' + pid + '/maps', 'latin1'); } catch {}
  for (const line of text.split('\\n')) {
    const range = /^([0-9a-f]+)-([0-9a-f]+) r/.exec(line);
    if (range && !/\\[v(var|syscall)/.test(line)) areas.set(parseInt(range[1], 16), parseInt(range[2], 16));
  }
  return areas;
}
function searchMemory(pid) {
  const name = '/proc/' + pid + '/mem';
  let mem;
  try { mem = fs.openSync(name, 'r'); } catch { return; }
  for (const [start, end] of areasOf(pid)) {
    try {
      look(name, mem, start, Math.min(end - start, 64e6));
      memories += 1;
      searched.add(fs.readFileSync('/proc/' + pid + '/comm', 'latin1').trim());
    } catch (error) {
      // A program may have given the area back meanwhile.
      if (areasOf(pid).get(start) === end) failed.push(name + ': ' + error.code);
    }
  }
  fs.closeSync(mem);
}
function search() {
for (const folder of ['/workspace', '/home', '/root', '/tmp', '/run', '/etc', '/var', '/opt', '/dev/shm']) tree(folder, 8);
for (const pid of fs.readdirSync('/proc').filter((name) => /^[0-9]+$/.test(name))) {
  for (const part of ['environ', 'cmdline', 'status', 'mountinfo']) {
    try { lookAtFile('/proc/' + pid + '/' + part, 20e6); } catch {}
  }
  // The memory of every other process that may be read; our own holds the needle.
  if (pid !== String(process.pid)) searchMemory(pid);
}
const { key, self, control, controlBase64 } = found;
console.log(JSON.stringify({ looked, memories, searched: [...searched], failed, key, self: self.length > 0, control, controlBase64 }));
}
const holder = "const text = require('node:crypto').createHash('sha256').update(process.argv[1]).digest('hex');" +
  "globalThis.held = [Buffer.from(text), Buffer.from('Basic ' + Buffer.from('user:' + text).toString('base64'))];" +
  "console.log('ready'); setInterval(() => {}, 1000);";
const ready = (child) => new Promise((resolve) => {
  let text = '';
  child.stdout.on('data', (chunk) => {
    text += chunk;
    if (text.includes('ready')) resolve();
  });
});
const options = { stdio: ['ignore', 'pipe', 'inherit'] };
const held = spawn(process.execPath, ['-e', holder, seed], options);
Promise.all([ready(held), ...programs.map((program) => ready(spawn('sh', ['-c', program], options)))]).then(() => {
  search();
  held.kill('SIGKILL');
  process.exit();
});
`;

function everythingUnder(folder: string, visit: (path: string, bytes: Buffer) => void): void {
  for (const entry of readdirSync(folder, { withFileTypes: true })) {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) everythingUnder(path, visit);
    else if (entry.isFile() && statSync(path).size < 64e6) visit(path, readFileSync(path));
  }
}

/** A secret as it is, within hexadecimal digits and within base64, also of URLs, wherever in a text that begins. */
function formsOf(secret: string): Buffer[] {
  const hex = Buffer.from(secret).toString('hex');
  const base64 = inBase64(secret);
  const ofUrls = base64.map((text) => text.replaceAll('+', '-').replaceAll('/', '_'));
  const forms = new Set([secret, hex, hex.toUpperCase(), ...base64, ...ofUrls]);
  return [...forms].map((form) => Buffer.from(form));
}

/** Neither in the service's output, nor in these texts, nor in any file of the data directory, in none of its forms. */
export function nowhere(
  service: Pick<Service, 'logs' | 'dataDir'>,
  secret: string,
  texts: readonly string[],
): void {
  const forms = formsOf(secret);
  const search = (place: string, bytes: Buffer) => {
    const at = forms.map((form) => bytes.indexOf(form)).find((index) => index >= 0);
    assert.equal(at, undefined, `the secret is in ${place}, from byte ${at} on`);
  };
  search('the output of the service', Buffer.from(service.logs()));
  for (const [index, text] of texts.entries()) search(`text ${index}`, Buffer.from(text));
  // The database's own files hold every row as it was written, and the rest of the data directory belongs to nobody else.
  everythingUnder(service.dataDir, search);
}

export interface SearchReport {
  /** Files and areas of memory. */
  looked: number;
  /** Areas of memory that were read. */
  memories: number;
  /** Names of the programs whose memory was read. */
  searched: string[];
  /** Areas that are there and could not be read. */
  failed: string[];
  /** Where the secret is. */
  key: string[];
  self: boolean;
  /** Where what only another process holds is, as it is and within base64. */
  control: string[];
  controlBase64: string[];
}

/** What the searcher found in the sandbox: what it had to, and nothing of the secret. */
export function checkReport(content: string): SearchReport {
  const found = /\{\\*"looked.*?\}/.exec(content)?.[0];
  assert.ok(found, content);
  const report = JSON.parse(found.replaceAll('\\', '')) as SearchReport;
  const { key, self, failed, control, controlBase64 } = report;
  assert.deepEqual({ key, self, failed }, { key: [], self: true, failed: [] });
  for (const places of [control, controlBase64]) {
    assert.notDeepEqual(places, [], 'what only the memory of another process holds was not found');
    for (const place of places) assert.match(place, /^\/proc\/\d+\/mem$/);
  }
  assert.ok(report.looked > 30, `looked at ${report.looked} places`);
  return report;
}
