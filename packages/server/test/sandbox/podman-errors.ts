import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { connect, createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { DockerDriver } from '../../src/sandbox/docker/driver.ts';
import { inspect } from '../../src/sandbox/docker/details.ts';
import { Engine } from '../../src/sandbox/docker/engine.ts';
import { silentLog } from '../support/log.ts';
import { inTime } from '../support/until.ts';
import { engineMissing, IMAGE, pathOf } from './engines.ts';
import { withEngine } from './engine-suite.ts';
import { collect, driverFixture } from './fixture.ts';

interface Request {
  line: string;
  client: Socket;
  /** Hands it on to the engine, whose answer goes to the client. */
  pass(): Socket;
}

/** A socket in front of an engine's. */
async function between(
  t: TestContext,
  socket: string,
  own: string,
  onRequest: (request: Request) => unknown,
) {
  const open = new Set<Socket>();
  const keep = (one: Socket): Socket => {
    open.add(one);
    one.on('error', () => one.destroy());
    one.on('close', () => open.delete(one));
    return one;
  };
  const server = createServer({ allowHalfOpen: true }, (client) => {
    keep(client).once('data', (head: Buffer) => {
      client.pause();
      const pass = (): Socket => {
        const target = keep(connect({ path: socket, allowHalfOpen: true }));
        target.write(head);
        client.pipe(target).pipe(client);
        return target;
      };
      void onRequest({ line: String(head).split('\r\n')[0] ?? '', client, pass });
    });
  });
  server.listen(own);
  await once(server, 'listening');
  t.after(() => {
    for (const one of open) one.destroy();
    server.close();
  });
}

/** Holds the service of Podman back for a while after it has opened the list of a process's cgroups, before it reads it. */
async function slowAtCgroupsOf(t: TestContext, service: number, pid: number): Promise<void> {
  const path = `/proc/${pid}/cgroup`;
  const slow = ['-e', 'trace=openat', '-e', 'inject=openat:delay_exit=1500000'];
  const strace = spawn('strace', ['-f', '-p', String(service), '-P', path, ...slow], {
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  t.after(async () => {
    strace.kill('SIGINT');
    if (strace.exitCode === null && strace.signalCode === null) await once(strace, 'exit');
  });
  let said = '';
  const attached = new Promise<void>((resolve, reject) => {
    strace.stderr.on('data', (chunk: Buffer) => {
      said += String(chunk);
      if (said.includes('attached')) resolve();
    });
    strace.on('exit', () => reject(new Error(`strace ended: ${said}`)));
  });
  await inTime('strace looks at Podman', attached);
}

const isStart = ({ line }: Request): boolean => /^POST .*\/start /.test(line);
const script = 'echo once >> times; sleep 0.5; echo done; exit 7';

/** What Podman itself does when an error of it is no sign that nothing was done. */
export function podmanErrors(): void {
  withEngine('podman', engineMissing('podman'), (engine) => {
    const runThrough = async (t: TestContext, onRequest: (request: Request) => unknown) => {
      const { folder, ...fx } = driverFixture(
        (at) =>
          new DockerDriver({
            ...{ ...at, log: silentLog, image: IMAGE, runtime: null },
            socket: join(at.areaDir, '..', 'between.sock'),
          }),
      );
      await between(t, engine().socket, join(folder, 'between.sock'), onRequest);
      try {
        const outcome = await collect(await fx.start(script));
        assert.deepEqual(outcome, {
          exit: { reason: 'exit', code: 7, signal: null },
          stdout: 'done\n',
          stderr: '',
        });
        assert.equal(readFileSync(join(folder, 'volume-1', 'workspace', 'times'), 'utf8'), 'once\n');
      } finally {
        await fx.close();
      }
    };

    test(
      'a program that ends just while Podman looks at it was started, its output is kept and its code told',
      { skip: pathOf('strace') === null && 'strace is not installed' },
      async (t) => {
        const answers: string[] = [];
        await runThrough(t, async (request) => {
          const name = /^POST .*\/containers\/([^/]+)\/start /.exec(request.line)?.[1];
          if (name !== undefined) {
            const details = await inspect(new Engine(engine().socket), name);
            await slowAtCgroupsOf(t, engine().pid, details?.pid ?? 0);
          }
          const isLook = /^GET .*\/containers\/[^/]+\/json /.test(request.line);
          const target = request.pass();
          if (isLook) target.on('data', (chunk: Buffer) => answers.push(String(chunk)));
        });
        assert.match(answers[0] ?? '', /^HTTP\/1\.1 500 .*read \/proc\/\d+\/cgroup: no such process/s);
      },
    );

    test('a start whose answer from Podman is lost is told as done', async (t) => {
      let lost = 0;
      await runThrough(t, (request) => {
        const target = request.pass();
        if (!isStart(request)) return;
        target.unpipe(request.client);
        target.once('data', () => {
          lost += 1;
          request.client.destroy();
        });
        target.resume();
      });
      assert.equal(lost, 1);
    });
  });
}
