import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { test } from 'node:test';
import { checkCells, wayOut } from '../sandbox/attack-table.ts';
import { cannot, casesOf, clients, type Client } from './clients.ts';
import { inside, tryWaysOut } from './inside-world.ts';

/** Programs of the host's /usr; where one is missing its column is not looked at, and the table is not compared. */
const places: Record<Client, string> = {
  ...{ curl: '/usr/bin/curl', git: '/usr/bin/git', node: process.execPath },
  ...{ python: '/usr/bin/python3', npm: '/usr/bin/npm' },
};
const names = Object.keys(clients) as Client[];
const missing = names.filter((client) => !existsSync(places[client]));

/** What a program got, as the table of docs/egress.md says it; by mode, program and case. */
const outcomes = { proxy: new Map<string, string>(), transparent: new Map<string, string>() };
for (const mode of ['proxy', 'transparent'] as const) {
  test(`From inside, ${mode} mode: every client reaches what is listed, and none anything else`, async (t) => {
    const made = await inside(t, mode);
    if (!made) return;
    const tried = names.filter((name) => !missing.includes(name));
    outcomes[mode] = await tryWaysOut(t, made, mode, tried);
    // All of them were tried, and none was reached.
    if (missing.length === 0) checkCells(wayOut, `${mode} mode`, { 33: 'blocked' });
  });
}

test('From inside, transparent mode leads ports on that a rule names, for hosts that speak first too', async (t) => {
  const made = await inside(t, 'transparent', ['good.test:22/tcp', 'good.test:7/tcp']);
  if (!made) return;
  const { seen, refusals } = await made.run(
    `t() { n=$1; shift; out=$(timeout 25 bash -c "$@" 2>&1 </dev/null | tr -d '\\r'); echo "@@ $n 0 $out"; }
    t ssh 'exec 3<>/dev/tcp/good.test/22 && head -1 <&3'
    t echo 'exec 3<>/dev/tcp/good.test/7 && echo over and back >&3 && head -1 <&3'
    t other 'exec 3<>/dev/tcp/other.test/22 && head -1 <&3'
    t unnamed 'exec 3<>/dev/tcp/good.test/21 && head -1 <&3'`,
  );
  assert.match(seen.get('ssh')!.text, /^SSH-2\.0-test/);
  assert.equal(seen.get('echo')!.text, 'over and back');
  assert.doesNotMatch(seen.get('other')!.text, /SSH/);
  assert.match(seen.get('unnamed')!.text, /refused/);
  assert.deepEqual(refusals, ['other.test:22 not_listed']);
});

test('The tables in docs/egress.md are what was seen from inside', (t) => {
  if (missing.length > 0) return void t.skip(`not here: ${missing.join(', ')}`);
  if (outcomes.proxy.size === 0 || outcomes.transparent.size === 0) {
    return void t.skip('one of the modes was not tried here');
  }
  const wanted = (['proxy', 'transparent'] as const).map((mode) => {
    const rows = casesOf({ loopback: '', address: '', udpLoopback: '', udpAddress: '' }).map((probed) => {
      const cells = names.map((client) => {
        const reason = cannot(client, mode, probed);
        return reason === null ? outcomes[mode].get(`${client} ${probed.name}`) : `– (${reason})`;
      });
      return `| ${[probed.what, ...cells].join(' | ')} |\n`;
    });
    const head = `| ${[`${mode} mode`, ...Object.values(clients)].join(' | ')} |\n`;
    return `${head}|${'---|'.repeat(names.length + 1)}\n${rows.join('')}`;
  });
  const page = readFileSync(new URL('../../../../docs/egress.md', import.meta.url), 'utf8');
  const isThere = wanted.every((table) => page.includes(table));
  assert.ok(isThere, `docs/egress.md must have these tables:\n${wanted.join('\n')}`);
});
