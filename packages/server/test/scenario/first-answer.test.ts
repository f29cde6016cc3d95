import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { newId } from '../../src/domain/ids.ts';
import { openRepos } from '../../src/repos/open-repos.ts';
import { createUrlGuard } from '../../src/services/url-guard.ts';
import { commitFiles } from '../support/git-world.ts';
import { httpsGit } from '../support/https-git.ts';
import { silentLog } from '../support/log.ts';
import { checkLog, logOf, workshop } from '../support/scenario.ts';
import { startService } from '../support/service.ts';
import { openSse } from '../support/sse.ts';
import { until } from '../support/until.ts';

const files = {
  'AGENTS.md': 'You keep the notes of the workshop.\n',
  'count.sh': 'echo "lines: $(wc -l < notes.txt)"\n',
  'notes.txt': 'one\ntwo\n',
};

test('From the first start over a push, a turn, a stream and a restart, the agent keeps its files and its memory.', async (t) => {
  const service = await startService({ bare: true });
  t.after(() => service.end());
  const shop = await workshop(service);
  t.after(() => shop.close());

  const printed = /^ {2}curl [\s\S]*?\n(?! {4})/m.exec(service.logs())?.[0];
  assert.ok(printed, service.logs());
  const sh = (line: string) => promisify(execFile)('sh', ['-c', line], { cwd: '/', timeout: 60_000 });
  const hasCurl = (await sh('command -v curl || true')).stdout !== '';
  // Counted as a skip of its own: nobody needs curl but to try this line.
  await t.test(
    'the line that the service prints is answered',
    { skip: hasCurl ? false : 'no curl here' },
    async () => {
      const first = JSON.parse((await sh(printed)).stdout) as {
        status: string;
        message: { content: string };
      };
      assert.equal(first.status, 'completed');
      assert.match(first.message.content, /Hello from the sandbox[\s\S]*\[exit code: 0\]/);
    },
  );
  const chat = /^ {2}BERTH_URL=.*$/m.exec(service.logs())?.[0] ?? '';
  assert.match((await sh(chat)).stdout, /Hello from the sandbox[\s\S]*\[exit code: 0\]/);

  const agent = await shop.agent(files);
  const answered = await agent.say('run: sh count.sh\nrun: echo three >> notes.txt');
  assert.match(answered.message.content, /lines: 2/);
  const { conversationId } = answered;

  const stream = await openSse(`${service.url}/api/v1/chat/send`, {
    key: service.key,
    method: 'POST',
    body: { agentId: agent.id, conversationId, content: 'run: sh count.sh' },
  });
  await until('the stream ends with the run', () => stream.ended);
  assert.equal(stream.frames.at(-1)?.event, 'run.completed');
  const events = stream.frames.map((frame) => JSON.parse(frame.data!));
  const answer = events.find(
    (event) => event.type === 'message.created' && event.data.role === 'assistant',
  ).data;
  assert.match(answer.content, /lines: 3/);
  const deltas = events.filter((event) => event.type === 'message.delta');
  assert.equal(deltas.map((event) => event.data.text).join(''), answer.content);

  const before = await logOf(service, { conversationId });
  await service.restart();
  assert.deepEqual(await logOf(service, { conversationId }), before);

  const again = await agent.say('run: sh count.sh', conversationId);
  assert.match(again.message.content, /lines: 3/);
  const known = await agent.say('What do you know?', conversationId);
  // Four questions, three answers, and what the tools said in between.
  assert.ok(Number(/messages in this conversation: (\d+)/.exec(known.message.content)?.[1]) >= 7);
  checkLog(await logOf(service, { conversationId }));
  assert.doesNotMatch(service.logs().slice(service.logs().indexOf('Try it')), /svc_live_\w{15}/);
});

test('An agent whose repository another https server holds is fetched, answers and survives a restart.', async (t) => {
  const home = await mkdtemp('/tmp/berth-x-');
  t.after(() => rm(home, { recursive: true, force: true }));
  const root = join(home, 'theirs');
  await mkdir(root);
  const theirs = await openRepos({ root, guard: createUrlGuard([]), log: silentLog });
  const remoteId = newId();
  await theirs.repos.createHosted(remoteId, files);
  const host = await httpsGit(
    home,
    theirs.wire(() => Promise.reject(new Error('Nobody pushes here.'))),
  );
  t.after(() => host.close());

  const service = await startService({
    env: { BERTH_ALLOW_PRIVATE_NETWORKS: '127.0.0.0/8', NODE_EXTRA_CA_CERTS: host.caFile },
  });
  t.after(() => service.end());
  const shop = await workshop(service);
  t.after(() => shop.close());

  const gitUrl = `https://127.0.0.1:${host.port}/${remoteId}.git`;
  const agent = await shop.agent(undefined, { gitUrl });
  const answered = await agent.say('run: sh count.sh\nrun: echo three >> notes.txt');
  assert.match(answered.message.content, /lines: 2/);

  // The same conversation as a stream.
  const stream = await openSse(`${service.url}/api/v1/chat/send`, {
    key: service.key,
    method: 'POST',
    body: { agentId: agent.id, conversationId: answered.conversationId, content: 'run: sh count.sh' },
  });
  await until('the stream ends with the run', () => stream.ended);
  const streamed = stream.frames.map((frame) => JSON.parse(frame.data!));
  const told = streamed
    .filter((event) => event.type === 'message.delta')
    .map((event) => event.data.text)
    .join('');
  assert.equal(streamed.at(-1)?.type, 'run.completed');
  assert.match(told, /lines: 3/);

  // Their owner goes on; a deployment fetches it.
  const folder = join(home, 'tree');
  await agent.git(['clone', '-q', join(root, `${remoteId}.git`), folder]);
  await commitFiles(agent.git, folder, { 'version.txt': 'second\n' });
  const pushed = await agent.git(['push', '-q', 'origin', 'HEAD:main'], { cwd: folder });
  assert.equal(pushed.code, 0, pushed.stderr);
  const deployed = await service.api('POST', `/v1/agents/${agent.id}/deployments`, {});
  assert.equal(deployed.status, 201, deployed.text);
  assert.equal(deployed.body.deployment.status, 'ready', deployed.text);

  await service.restart();
  const again = await agent.say('run: sh count.sh; cat version.txt', answered.conversationId);
  assert.match(again.message.content, /lines: 3\nsecond/);
  checkLog(await logOf(service, { conversationId: answered.conversationId }));
});
