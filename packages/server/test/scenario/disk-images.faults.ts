import assert from 'node:assert/strict';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { isMounted } from '../../src/sandbox/disk/image-mounts.ts';
import { Volumes } from '../../src/sandbox/volumes.ts';
import { noDisks } from '../support/disk-trial.ts';
import { silentLog } from '../support/log.ts';
import { disksSideBySide } from '../support/side-by-side.ts';
import { workshop, type Pushed, type Workshop } from '../support/scenario.ts';
import { startService, type Service } from '../support/service.ts';
import { until } from '../support/until.ts';

const problem = await noDisks();

describe(
  'agents with disks of their own, in sandboxes that were kept ready',
  { skip: problem ?? false },
  () => {
    let service: Service;
    let shop: Workshop;
    let agent: Pushed;
    before(async () => {
      service = await startService({
        env: {
          BERTH_DISK_MODE: 'image',
          BERTH_SANDBOX_DISK_MB: '32',
          BERTH_WARM_SANDBOXES: '1',
          BERTH_DETACH: 'always',
        },
      });
      shop = await workshop(service);
      await ready();
      agent = await shop.agent({ 'AGENTS.md': 'x\n' });
    });
    after(async () => {
      await shop?.close();
      await service?.end();
    });

    const volume = (agentId: string) => join(service.dataDir, 'volumes', agentId);
    const image = (agentId: string) => join(service.dataDir, 'disks', `${agentId}.img`);
    const ready = () =>
      until(
        'a sandbox is ready',
        async () => /^berth_sandboxes_ready 1$/m.test((await service.api('GET', '/metrics')).text),
        60_000,
      );
    const sh = async (agentId: string, script: string) => {
      const command = ['sh', '-c', script];
      const { body, text } = await service.api('POST', `/sandbox/${agentId}/exec`, { command });
      assert.equal(body.exitCode, 0, text);
      return body.stdout as string;
    };
    const file = (method: string, path: string, body?: string, agentId = agent.id) =>
      service.api(method, `/sandbox/${agentId}/files/${path}`, body, {
        'content-type': 'application/octet-stream',
      });
    /** Only a sandbox that was kept ready has its volume mounted ID-mapped. */
    const isClaimed = async (agentId: string) =>
      (await sh(agentId, 'grep -c idmapped /proc/self/mountinfo || true')).trim() !== '0';

    test('work, with files that both sides see as the same user', async () => {
      const { message } = await agent.say('run: echo from inside > inside.txt; id -u; stat -c %u inside.txt');
      assert.match(message.content, /1000\n1000\n/);
      assert.ok(isMounted(volume(agent.id)));
      assert.ok(await isClaimed(agent.id));
      assert.equal((await file('GET', 'inside.txt')).text, 'from inside\n');
      assert.equal((await file('PUT', 'outside.txt', 'from outside')).status, 201);
      assert.equal(await sh(agent.id, 'cat outside.txt; stat -c %u outside.txt'), 'from outside1000\n');
    });

    test('are held to their size: a command, an upload, and a file that fits again after a delete', async () => {
      const told = await sh(
        agent.id,
        'mkdir big; head -c 100M /dev/zero | (cd big; split -b 4M - 2>&1) | grep -o "No space left"; du -sm big | cut -f1',
      );
      const [why, usedMiB] = told.trim().split('\n');
      assert.equal(why, 'No space left');
      assert.ok(Number(usedMiB) <= 40, told);
      const refused = await file('PUT', 'more', 'x'.repeat(2_000_000));
      assert.equal(refused.status, 413, refused.text);
      assert.equal((await file('DELETE', 'big?recursive=true')).status, 204);
      const taken = await file('PUT', 'more', 'x'.repeat(2_000_000));
      assert.equal(taken.status, 201, taken.text);
      assert.equal(await sh(agent.id, 'stat -c %s more; rm more'), '2000000\n');
    });

    test('have snapshots, go back to them, and give their files to another agent that has a disk of its own', async () => {
      const taken = await service.api('POST', `/sandbox/${agent.id}/snapshots`, { name: 'before' });
      assert.equal(taken.status, 201, taken.text);
      const restore = `/sandbox/${agent.id}/snapshots/${taken.body.snapshot.id}/restore`;
      await sh(agent.id, 'rm inside.txt; echo later > later.txt');
      const back = await service.api('POST', restore, {});
      assert.equal(back.status, 200, back.text);
      assert.equal(
        await sh(agent.id, 'ls; cat inside.txt'),
        'AGENTS.md\ninside.txt\noutside.txt\nfrom inside\n',
      );
      assert.ok(isMounted(volume(agent.id)), 'it is the same disk');

      const other = await shop.agent({ 'AGENTS.md': 'y\n' });
      const given = await service.api('POST', restore, { toAgentId: other.id });
      assert.equal(given.status, 200, given.text);
      assert.ok(isMounted(volume(other.id)));
      assert.match(await sh(other.id, 'cat inside.txt; echo mine > inside.txt'), /^from inside$/m);
      assert.equal(await sh(agent.id, 'cat inside.txt'), 'from inside\n');
    });

    test('fork with a conversation', async () => {
      const { conversationId } = await agent.say('say: hello');
      const heir = await shop.agent({ 'AGENTS.md': 'z\n' });
      const forked = await service.api('POST', `/v1/conversations/${conversationId}/fork`, {
        toAgentId: heir.id,
      });
      assert.equal(forked.status, 201, forked.text);
      assert.equal((await file('GET', 'outside.txt', undefined, heir.id)).text, 'from outside');
      assert.ok(isMounted(volume(heir.id)));
      assert.equal(await sh(heir.id, 'cat outside.txt'), 'from outside');
    });

    test('are found again after kill -9 and after an orderly stop, and are gone with their agent', async () => {
      await service.kill9();
      assert.ok(isMounted(volume(agent.id)), 'a mount outlives the service');
      await service.restart();
      assert.equal((await file('GET', 'inside.txt')).text, 'from inside\n');
      await service.stop('SIGINT');
      assert.ok(
        !isMounted(volume(agent.id)),
        'after an orderly stop that ends all sandboxes nothing is mounted',
      );
      await service.restart();
      assert.equal((await file('GET', 'inside.txt')).text, 'from inside\n');
      assert.equal(await sh(agent.id, 'cat outside.txt'), 'from outside');
      assert.equal((await service.api('DELETE', `/v1/agents/${agent.id}`)).status, 204);
      await until('its disk is gone', () => !existsSync(image(agent.id)) && !existsSync(volume(agent.id)));
      assert.ok(readdirSync(join(service.dataDir, 'disks')).every((name) => !name.startsWith(agent.id)));
    });
  },
);

test(
  'many disks that are made and removed side by side are each their own agent’s',
  { skip: problem ?? false },
  async (t) => {
    const folder = mkdtempSync('/tmp/berth-images-');
    t.after(() => rmSync(folder, { recursive: true }));
    const [imagesDir, volumesDir] = [join(folder, 'disks'), join(folder, 'volumes')];
    mkdirSync(volumesDir);
    const volumes = new Volumes({ mode: 'image', imagesDir, bytes: 16 * 1024 * 1024 }, silentLog);
    await disksSideBySide({ volumes, imagesDir, volumesDir }, 6, 20);
  },
);
