import assert from 'node:assert/strict';
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import type { Service } from './service.ts';

/**
 * Looks for a text everywhere that a process in the sandbox can read. The needle is put together from two halves, so
 * that the program does not find itself; `self` proves that the search finds what is there. With `program` that shell
 * command is started first and searched while it lives; it says `ready`.
 */
export const searcher = `
const fs = require('node:fs');
const path = require('node:path');
const [half, rest, self, program] = process.argv.slice(2);
const needles = { key: Buffer.from(half + rest), self: Buffer.from(self) };
const found = { key: [], self: [] };
let looked = 0;
let memories = 0;
function look(name, bytes) {
  looked += 1;
  for (const [kind, needle] of Object.entries(needles)) if (bytes.includes(needle)) found[kind].push(name);
}
function tree(folder, depth) {
  let entries = [];
  try { entries = fs.readdirSync(folder, { withFileTypes: true }); } catch { return; }
  for (const entry of entries) {
    const at = path.join(folder, entry.name);
    try {
      if (entry.isDirectory()) { if (depth > 0) tree(at, depth - 1); }
      else if (entry.isFile() && fs.statSync(at).size < 20e6) look(at, fs.readFileSync(at));
    } catch {}
  }
}
function search() {
for (const folder of ['/workspace', '/home', '/root', '/tmp', '/run', '/etc', '/var', '/opt', '/dev/shm']) tree(folder, 8);
for (const pid of fs.readdirSync('/proc').filter((name) => /^[0-9]+$/.test(name))) {
  for (const part of ['environ', 'cmdline', 'status', 'mountinfo']) {
    try { look('/proc/' + pid + '/' + part, fs.readFileSync('/proc/' + pid + '/' + part)); } catch {}
  }
  if (pid === String(process.pid)) continue;
  // The memory of every other process that may be read; our own holds the needle.
  try {
    const mem = fs.openSync('/proc/' + pid + '/mem', 'r');
    for (const line of fs.readFileSync('/proc/' + pid + '/maps', 'latin1').split('\\n')) {
      const range = /^([0-9a-f]+)-([0-9a-f]+) r/.exec(line);
      if (!range) continue;
      const start = parseInt(range[1], 16);
      memories += 1;
      const bytes = Buffer.alloc(Math.min(parseInt(range[2], 16) - start, 64e6));
      try { const read = fs.readSync(mem, bytes, 0, bytes.length, start); look('/proc/' + pid + '/mem', bytes.subarray(0, read)); } catch {}
    }
  } catch {}
}
console.log(JSON.stringify({ looked, memories, key: found.key, self: found.self.length > 0 }));
}
if (!program) search();
else {
  const child = require('node:child_process').spawn('sh', ['-c', program], { stdio: ['ignore', 'pipe', 'inherit'] });
  let text = '';
  child.stdout.on('data', (chunk) => {
    text += chunk;
    if (!text.includes('ready')) return;
    search();
    process.exit();
  });
}
`;

function everythingUnder(folder: string, visit: (path: string, bytes: Buffer) => void): void {
  for (const entry of readdirSync(folder, { withFileTypes: true })) {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) everythingUnder(path, visit);
    else if (entry.isFile() && statSync(path).size < 64e6) visit(path, readFileSync(path));
  }
}

/** Neither in the service's output, nor in these texts, nor in any file of the data directory. */
export function nowhere(service: Service, secret: string, texts: string[]): void {
  for (const text of [service.logs(), ...texts]) assert.equal(text.includes(secret), false);
  // The database's own files hold every row as it was written, and the rest of the data directory belongs to nobody else.
  everythingUnder(service.dataDir, (path, bytes) => {
    assert.equal(bytes.includes(secret), false, `the key is in ${path}`);
  });
}

export interface SearchReport {
  /** Files and areas of memory. */
  looked: number;
  memories: number;
  key: string[];
  self: boolean;
}

/** What the searcher found in the sandbox: itself, and nothing of the secret. */
export function checkReport(content: string): SearchReport {
  const found = /\{\\*"looked.*?\}/.exec(content)?.[0];
  assert.ok(found, content);
  const report = JSON.parse(found.replaceAll('\\', '')) as SearchReport;
  assert.deepEqual({ key: report.key, self: report.self }, { key: [], self: true });
  assert.ok(report.looked > 30, `looked at ${report.looked} places`);
  return report;
}
