import assert from 'node:assert/strict';
import { existsSync, readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { noDisks } from '../support/disk-trial.ts';
import { gauge } from '../support/gauge.ts';
import { checkLog, logOf, workshop } from '../support/scenario.ts';
import { startService, type Service } from '../support/service.ts';
import { until } from '../support/until.ts';

const isRoot = process.getuid?.() === 0;
const problem = await noDisks();

const ready = (service: Service, count: number): Promise<boolean> =>
  until(
    `${count} sandboxes are ready`,
    async () => (await gauge(service, 'berth_sandboxes_ready')) === count,
  );

test(
  'An agent answers from a sandbox that was kept ready, which lives on over a restart; those that nobody took are gone.',
  { skip: isRoot ? false : 'only root has a warm pool' },
  async (t) => {
    const service = await startService({
      env: {
        BERTH_DETACH: 'always',
        BERTH_WARM_SANDBOXES: '1',
        BERTH_DISK_MODE: 'auto',
        BERTH_SANDBOX_DISK_MB: '64',
      },
    });
    t.after(() => service.end());
    const shop = await workshop(service);
    t.after(() => shop.close());
    const agent = await shop.agent({ 'AGENTS.md': 'x\n' });
    await ready(service, 1);
    const disks = join(service.dataDir, 'disks');
    const names = () => (existsSync(disks) ? readdirSync(disks) : []);
    const blank = () => names().find((name) => existsSync(join(disks, name, 'reserve')));
    if (!problem) await until('a disk is ready', () => blank() !== undefined);
    const inode = problem ? undefined : statSync(join(disks, `${blank()}.img`)).ino;
    const { conversationId } = await agent.say('say: the first answer');
    assert.equal(statSync(join(disks, `${agent.id}.img`), { throwIfNoEntry: false })?.ino, inode);
    const sh = async (script: string): Promise<string> => {
      const command = ['sh', '-c', script];
      const { body, text } = await service.api('POST', `/sandbox/${agent.id}/exec`, { command });
      assert.equal(body.exitCode, 0, text);
      return body.stdout;
    };
    // Only this sandbox has what lies in its /tmp.
    const whose = 'id -u; stat -c %u /workspace/AGENTS.md; grep -c idmapped /proc/self/mountinfo';
    assert.equal(await sh(`echo kept > /tmp/mark; ${whose}`), '1000\n1000\n2\n');
    // The next one is made, and is not the same.
    await ready(service, 1);
    const { runId } = await agent.ask('slow: 40 50', conversationId);
    await service.kill9();
    await service.restart();
    await until(
      'the run has ended',
      async () => (await service.api('GET', `/v1/runs/${runId}`)).body.run.status === 'completed',
    );
    checkLog(await logOf(service, { conversationId }));
    assert.equal(await sh('cat /tmp/mark'), 'kept\n');
    assert.equal(await gauge(service, 'berth_sandboxes'), 1);
    assert.equal(await gauge(service, 'berth_sandboxes_leaked'), 0);
    await ready(service, 1);
    await service.stop();
    assert.deepEqual(
      names().filter((name) => !name.startsWith(agent.id)),
      [],
      'no disk that is nobody’s outlives the service',
    );
  },
);
