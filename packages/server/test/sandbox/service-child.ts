// Plays the service in the tests of a crash: starts sandboxes in the folder and under the name given, prints one JSON
// line for each, and stays until it is killed. In the mode `limiting` its only start comes to the limits, and no further; in
// `recording` it is killed when the limits are set and the program is about to be let go.
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { newId } from '../../src/domain/ids.ts';
import { createBubblewrap } from '../../src/sandbox/bubblewrap.ts';
import { lineOf, pidsOf } from './fixture.ts';
import { silentLog } from '../support/log.ts';

import { Records } from '../../src/sandbox/record.ts';

const [folder = '', name = '', cgroups = '', mode = 'attached'] = process.argv.slice(2);
const driver = createBubblewrap({
  areaDir: join(folder, 'area'),
  name,
  log: silentLog,
  useCgroups: cgroups === 'cgroups',
  ...(mode === 'limiting' && { perlPath: '/no/such/perl', prlimitPath: join(folder, 'prlimit') }),
});
if (mode === 'recording') Records.prototype.write = () => void process.kill(process.pid, 'SIGKILL');
const script =
  'trap "" TERM HUP; setsid sh -c "trap \'\' HUP TERM; sleep 1000" & ls -l /proc/self/fd /proc/1/fd | grep -c /dev/null; exec sleep 1000';
const patient = 'echo up; while [ ! -e go ]; do sleep 0.05; done; exit 5';
const scripts: Record<string, string> = {
  attached: script,
  detached: patient,
  limiting: 'echo > ran; exec sleep 1000',
  recording: 'echo > ran; exec sleep 1000',
};
for (const slot of [1, 2, 3]) {
  const id = newId();
  const runDir = join(folder, `run-${id}`);
  mkdirSync(runDir, { recursive: true });
  const sandbox = await driver.start({
    id,
    slot,
    volumeDir: join(folder, `volume-${slot}`),
    runDir,
    binds: [],
    command: ['/bin/sh', '-c', scripts[mode] ?? script],
    env: { PATH: '/usr/bin:/bin' },
    limits: { memoryBytes: 64 << 20, cpus: 1, pids: 32, diskBytes: 64 << 20, openFiles: 64 },
    detached: mode !== 'attached',
    transparentEgress: false,
  });
  const leaked = mode === 'detached' ? '' : await lineOf(sandbox.stdout, (line) => /^\d+$/.test(line));
  process.stdout.write(`${JSON.stringify({ id, pids: pidsOf(sandbox), leaked })}\n`);
}
process.stdout.write('ready\n');
setInterval(() => {}, 60_000);
