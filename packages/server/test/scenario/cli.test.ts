import assert from 'node:assert/strict';
import { readFileSync, statSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { Webhook } from 'standardwebhooks';
import { berthIn, type BerthOptions, type BerthRun } from '../support/berth.ts';
import { commitFiles } from '../support/git-world.ts';
import { workshop, type Workshop } from '../support/scenario.ts';
import { startService, type Service } from '../support/service.ts';
import { until } from '../support/until.ts';
import { receiver } from '../webhooks/world.ts';

let service: Service;
let shop: Workshop;
/** With the key and the address in the environment. */
let start: (args: string[], options?: BerthOptions) => BerthRun;

before(async () => {
  service = await startService({ env: { BERTH_ALLOW_PRIVATE_NETWORKS: '127.0.0.0/8' } });
  shop = await workshop(service);
  start = berthIn(shop.home, { BERTH_URL: service.url, BERTH_API_KEY: service.key });
});
after(async () => {
  await shop?.close();
  await service?.end();
});

/** Runs a command that must end with `code`; the key is in nothing that it writes. */
async function berth(args: string[], options: BerthOptions & { code?: number } = {}) {
  const ended = await start(args, options).ended;
  assert.equal(ended.code, options.code ?? 0, `berth ${args.join(' ')}\n${ended.stdout}\n${ended.stderr}`);
  assert.equal(`${ended.stdout}${ended.stderr}`.includes(service.key), false);
  return ended;
}

/** The same with --json: standard output is one JSON document. */
// oxlint-disable-next-line no-explicit-any -- tests read into answers of all commands
async function berthJson(args: string[], options: BerthOptions & { code?: number } = {}): Promise<any> {
  return JSON.parse((await berth([...args, '--json'], options)).stdout);
}

const makeAgent = (name: string) => berthJson(['agents', 'create', name]);

test('login stores a key that works, for its owner only; whoami tells what it may do; a wrong or missing key ends with 4.', async () => {
  const home = join(shop.home, 'fresh');
  await mkdir(home);
  const fresh = berthIn(home);
  const missing = await fresh(['whoami']).ended;
  assert.deepEqual([missing.code, missing.stdout], [4, '']);
  assert.match(missing.stderr, /berth login/);

  const wrong = `${service.key.slice(0, -1)}${service.key.endsWith('a') ? 'b' : 'a'}`;
  const refused = await fresh(['login', '--url', service.url], { stdin: `${wrong}\n` }).ended;
  assert.equal(refused.code, 4, refused.stderr);
  assert.match(refused.stderr, /key_invalid/);
  assert.equal(refused.stderr.includes(wrong), false);

  const stored = await fresh(['login', '--url', service.url], { stdin: `${service.key}\n` }).ended;
  assert.equal(stored.code, 0, stored.stderr);
  const file = join(home, '.config', 'berth', 'config.json');
  assert.equal(statSync(file).mode & 0o777, 0o600);
  const who = await fresh(['whoami', '--json']).ended;
  assert.equal(who.code, 0, who.stderr);
  const told = JSON.parse(who.stdout);
  assert.deepEqual([told.url, told.key.scope, told.key.binding], [service.url, 'edit', 'org-bound']);
  assert.equal(who.stdout.includes(service.key), false);
  const plain = await fresh(['whoami']).ended;
  assert.match(plain.stdout, /^scope +edit$/m);
});

test('--help and help say how a command, a group and a command of the host are used, without a key and with code 0.', async () => {
  const bare = berthIn(shop.home);
  for (const args of [
    ['secrets', '--help'],
    ['help', 'secrets'],
    ['secrets', 'set', '--help'],
    ['doctor', '-h'],
  ]) {
    const told = await bare(args).ended;
    assert.deepEqual([told.code, told.stderr], [0, ''], args.join(' '));
    const usage = args.includes('secrets') ? /^ *berth secrets set </m : /^berth doctor /;
    assert.match(told.stdout, usage, args.join(' '));
  }
  const version = await bare(['--version']).ended;
  assert.deepEqual([version.code, version.stderr], [0, '']);
  assert.match(version.stdout, /^berth \d+\.\d+\.\d+\n$/);
  const unknown = await bare(['secretz', '--help']).ended;
  assert.equal(unknown.code, 1);
  assert.match(unknown.stderr, /unknown command "secretz --help"/);
});

test('agents are created, listed, shown by name or id, updated, and deleted only with --yes.', async () => {
  const agent = await berthJson(['agents', 'create', 'Listed', '--description', 'one']);
  assert.deepEqual([agent.name, agent.description], ['Listed', 'one']);
  const all = await berthJson(['agents', 'list']);
  assert.ok(all.some((one: { id: string }) => one.id === agent.id));
  assert.match((await berth(['agents', 'list'])).stdout, new RegExp(`^${agent.id} +Listed`, 'm'));
  assert.equal((await berthJson(['agents', 'show', 'Listed'])).id, agent.id);
  const updated = await berthJson(['agents', 'update', agent.id, '--name', 'Renamed']);
  assert.equal(updated.name, 'Renamed');
  assert.match((await berth(['agents', 'delete', 'Renamed'], { code: 1 })).stderr, /--yes/);
  await berth(['agents', 'delete', 'Renamed', '--yes']);
  assert.match((await berth(['agents', 'show', agent.id], { code: 1 })).stderr, /not_found/);
  assert.match((await berth(['agents', 'show', 'Renamed'], { code: 1 })).stderr, /no agent is named/);
});

test('deploy sets the remote and pushes with the progress of the service; the key stays out of the repository.', async () => {
  const agent = await makeAgent('Deployed');
  const folder = join(shop.home, 'deployed');
  const pushed = await shop.agent();
  await mkdir(folder);
  assert.match((await berth(['deploy', 'Deployed'], { cwd: folder, code: 1 })).stderr, /git init/);
  await pushed.git(['init', '-q', '-b', 'main', folder]);
  assert.match((await berth(['deploy', 'Deployed'], { cwd: folder, code: 1 })).stderr, /commit/);
  const commit = await commitFiles(pushed.git, folder, { 'AGENTS.md': 'x\n', 'v.txt': 'deployed\n' });
  const done = await berth(['deploy', 'Deployed', '--json'], { cwd: folder });
  const deployment = JSON.parse(done.stdout);
  assert.deepEqual([deployment.commit, deployment.status], [commit, 'ready']);
  assert.match(done.stderr, /remote: /);
  const config = readFileSync(join(folder, '.git', 'config'), 'utf8');
  assert.ok(config.includes(agent.gitUrl), config);
  assert.equal(config.includes('svc_live_'), false);

  await commitFiles(pushed.git, folder, { 'agent.json': '{"permissions": 1}' });
  const broken = await berth(['deploy', 'Deployed'], { cwd: folder, code: 1 });
  assert.match(broken.stderr, /agent\.json: permissions/);
  assert.equal(broken.stdout, '');
  await commitFiles(pushed.git, folder, { 'agent.json': '{}', 'v.txt': 'second\n' });
  assert.equal((await berthJson(['deploy', agent.id], { cwd: folder })).status, 'ready');
  assert.match((await berth(['chat', agent.id, 'run: cat v.txt'])).stdout, /second/);

  const listed = await berthJson(['deployments', 'list', 'Deployed']);
  const first = listed.find((one: { commit: string }) => one.commit === commit);
  await berth(['deployments', 'activate', 'Deployed', first.id]);
  assert.match((await berth(['chat', agent.id, 'run: cat v.txt'])).stdout, /deployed/);
});

test('chat streams the answer to standard output and shows the calls of tools on standard error; a conversation goes on.', async () => {
  await makeAgent('Chatty');
  const first = await berth(['chat', 'Chatty', 'run: echo from the sandbox']);
  assert.match(first.stdout, /from the sandbox\n\[exit code: 0\]/);
  assert.match(first.stderr, /^> .*echo from the sandbox/m);
  assert.match(first.stderr, /^< completed/m);
  const conversation = /conversation ([0-9a-f-]{36})/.exec(first.stderr)![1]!;
  const second = await berth(['chat', 'Chatty', 'say: again', '--conversation', conversation]);
  assert.equal(second.stdout, 'again\n');

  const events = await berth(['chat', 'Chatty', 'say: as events', '--conversation', conversation, '--json']);
  const lines = events.stdout
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line));
  assert.equal(lines.at(-1).type, 'run.completed');
  const text = lines.filter((event) => event.type === 'message.delta').map((event) => event.data.text);
  assert.equal(text.join(''), 'as events');

  const piped = await berth(['chat', 'Chatty'], { stdin: 'say: one\n\nsay: two\n' });
  assert.equal(piped.stdout, 'one\ntwo\n');
  const known = await berthJson(['conversations', 'list', 'Chatty']);
  assert.equal(known.length, 2);

  const heir = await makeAgent('Chatty heir');
  const fork = await berthJson([
    'conversations',
    'fork',
    conversation,
    '--to',
    'Chatty heir',
    '--title',
    'On',
  ]);
  assert.deepEqual([fork.agentId, fork.title], [heir.id, 'On']);
  const more = await berth(['chat', 'Chatty heir', 'say: on we go', '--conversation', fork.id]);
  assert.equal(more.stdout, 'on we go\n');
  const shown = await berth(['conversations', 'fork', conversation]);
  assert.match(shown.stdout, /title +run: echo from the sandbox/);
});

test('Ctrl-C in a chat cancels the run and ends with 2; a turn that fails ends with 1.', async () => {
  const agent = await makeAgent('Slow');
  await berth(['chat', 'Slow', 'say: warm']);
  const chat = start(['chat', 'Slow', 'slow: 200 50']);
  await until('words stream', () => chat.stdout().includes('3 '));
  chat.child.kill('SIGINT');
  const ended = await chat.ended;
  assert.equal(ended.code, 2, ended.stderr);
  assert.match(ended.stderr, /! cancelled/);
  const [run] = await berthJson(['runs', 'list', agent.id, '--limit', '1']);
  assert.equal(run.status, 'cancelled');

  const failed = await berth(['chat', 'Slow', 'run: kill -9 -1'], { code: 1 });
  assert.match(failed.stderr, /! failed: .*\(harness_exit\)/);
});

test('A chat outlasts a restart of the service and shows the whole answer of the turn that goes on.', async () => {
  await makeAgent('Lasting');
  await berth(['chat', 'Lasting', 'say: warm']);
  const chat = start(['chat', 'Lasting', 'slow: 60 100', '--json']);
  await until('words stream', () => chat.stdout().includes('message.delta'));
  await service.kill9();
  await service.restart();
  const ended = await chat.ended;
  assert.equal(ended.code, 0, ended.stderr);
  const events = ended.stdout
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line));
  const answer = events.findLast((event) => event.type === 'message.created');
  assert.match(answer.data.content, /^1 2 [\s\S]* 60 $/);
  const seqs = events.map((event) => event.seq);
  assert.deepEqual(
    seqs,
    seqs.map((_, index) => seqs[0] + index),
  );
});

test('keys are made, shown once, listed without their value, work as far as their scope goes, and are revoked.', async () => {
  const agent = await makeAgent('Keyed');
  const made = await berth(['keys', 'create', 'for a program', '--agent', 'Keyed']);
  const value = made.stdout.trim();
  assert.match(value, /^svc_live_\w{49}$/);
  assert.equal(made.stderr.includes(value), false);
  const as = { env: { BERTH_API_KEY: value } };
  assert.equal((await berthJson(['agents', 'show', agent.id], as)).id, agent.id);
  assert.match((await berth(['agents', 'create', 'No'], { ...as, code: 1 })).stderr, /_insufficient\)/);
  const [listed] = await berthJson(['keys', 'list', 'Keyed']);
  assert.equal(JSON.stringify(listed).includes(value), false);
  await berth(['keys', 'revoke', listed.id, '--agent', 'Keyed']);
  await berth(['whoami'], { ...as, code: 4 });

  const wide = await berthJson(['keys', 'create', 'wide', '--scope', 'edit']);
  assert.deepEqual([wide.key.scope, wide.key.binding], ['edit', 'org-bound']);
  await berth(['keys', 'revoke', wide.key.id]);
});

test('secrets are read from standard input, reach the sandbox, are listed by name, and are never shown.', async () => {
  await makeAgent('Secretive');
  const value = 'a secret that nobody prints';
  const set = await berth(['secrets', 'set', 'Secretive', 'TOKEN'], { stdin: `${value}\n` });
  assert.equal(`${set.stdout}${set.stderr}`.includes(value), false);
  assert.match(set.stderr, /^set TOKEN; the agent can read the value/);
  const [listed] = await berthJson(['secrets', 'list', 'Secretive']);
  assert.equal(listed.key, 'TOKEN');
  assert.equal(JSON.stringify(listed).includes(value), false);
  const told = await berth(['chat', 'Secretive', 'run: printf %s "$TOKEN" | wc -c']);
  assert.match(told.stdout, new RegExp(`^${value.length}$`, 'm'));
  const withheld = await berth(['secrets', 'set', 'Secretive', 'GIT_TOKEN'], { stdin: `${value}\n` });
  assert.match(withheld.stderr, /^set GIT_TOKEN; .* never enters the sandbox$/m);
  await berth(['secrets', 'delete', 'Secretive', 'GIT_TOKEN']);
  await berth(['secrets', 'delete', 'Secretive', 'TOKEN']);
  assert.deepEqual(await berthJson(['secrets', 'list', 'Secretive']), []);
  const empty = await berth(['secrets', 'set', 'Secretive', 'TOKEN'], { stdin: '', code: 1 });
  assert.match(empty.stderr, /empty/);
});

test('runs are listed, shown and cancelled; logs tell what happened, and -f goes on telling through a restart until Ctrl-C.', async () => {
  const agent = await makeAgent('Logged');
  await berth(['chat', 'Logged', 'say: first words']);
  const [run] = await berthJson(['runs', 'list', 'Logged']);
  assert.equal((await berthJson(['runs', 'show', run.id])).status, 'completed');
  assert.match((await berth(['logs', 'Logged'])).stdout, /run\.completed/);
  const ofRun = await berth(['logs', '--run', run.id, '--json']);
  assert.equal(JSON.parse(ofRun.stdout.trimEnd().split('\n').at(-1)!).type, 'run.completed');

  const logs = start(['logs', 'Logged', '-f', '--json']);
  await until('the past is told', () => logs.stdout().includes('first words'));
  await service.restart();
  const asked = await service.api('POST', '/api/v1/chat/send', {
    agentId: agent.id,
    conversationId: run.conversationId,
    content: 'say: second words',
  });
  assert.equal(asked.status, 200, asked.text);
  await until('what happens now is told', () => logs.stdout().includes('second words'), 60_000);
  const elsewhere = start(['chat', 'Logged', 'slow: 400 50']);
  await until('a new conversation is told too', () => logs.stdout().includes('slow: 400 50'), 60_000);
  const [slow] = await berthJson(['runs', 'list', 'Logged', '--limit', '1']);
  await berth(['runs', 'cancel', slow.id]);
  assert.equal((await elsewhere.ended).code, 2);
  await until('its end is told', () => logs.stdout().includes('run.cancelled'));
  logs.child.kill('SIGINT');
  const ended = await logs.ended;
  assert.equal(ended.code, 2, ended.stderr);
  const events = ended.stdout
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line));
  const seqs = events.filter((event) => event.data.runId === run.id).map((event) => event.seq);
  assert.deepEqual(seqs, [...new Set(seqs)], 'no event is told twice');
});

test('A channel is tried with a signed sample, what comes in is shown as it changes, and what failed is worked on again.', async () => {
  const agent = await makeAgent('Reached');
  const settings = JSON.stringify({ settings: { text: '{{data.text}}' } });
  const channel = await berthJson(['channels', 'create', 'Reached', 'generic', 'orders'], {
    stdin: settings,
  });
  const tail = start(['webhooks', 'tail', 'Reached', '--channel', channel.id]);
  await until('the tail waits', () => tail.stderr().includes('waiting'));
  const trigger = ['webhooks', 'trigger', 'generic.order', '--channel', channel.id, '--text', 'say: taken'];
  const tried = await berthJson(trigger);
  assert.deepEqual([tried.answer.status, tried.verified, tried.events.length], [200, true, 1]);
  assert.equal(JSON.stringify(tried).includes(channel.secret), false);
  await until('its end is shown', () => /generic\.order +done .* sample$/m.test(tail.stdout()), 60_000);
  tail.child.kill('SIGINT');
  assert.equal((await tail.ended).code, 2);
  const [message] = (await berthJson(['webhooks', 'list', 'Reached'])) as { id: string; agentId: string }[];
  assert.deepEqual([message!.id, message!.agentId], [tried.events[0].id, agent.id]);
  assert.match((await berth(['webhooks', 'trigger', 'slack.message'], { code: 1 })).stderr, /--channel/);
  const replay = ['webhooks', 'replay', 'Reached', '--failed', '--since'];
  assert.deepEqual(await berthJson([...replay, '2h']), { replayed: 0 });
  assert.match((await berth([...replay, 'noon'], { code: 1 })).stderr, /--since takes/);
});

test('A schedule is created, shown, run at once, paused, resumed and deleted; a line that is no cron changes nothing.', async () => {
  await makeAgent('Punctual');
  const zone = ['--zone', 'Europe/Berlin'];
  const wrong = await berth(['schedules', 'create', 'Punctual', '61 8 * * *', 'say: no'], { code: 1 });
  assert.match(wrong.stderr, /invalid_request/);
  assert.match(wrong.stderr, /cron/);
  const create = ['schedules', 'create', 'Punctual', '30 8 1 1 *', 'say: happy new year', ...zone];
  const made = await berthJson([...create, '--name', 'New year']);
  assert.deepEqual([made.name, made.timeZone, made.status], ['New year', 'Europe/Berlin', 'active']);
  const listed = await berth(['schedules', 'list', 'Punctual']);
  assert.match(
    listed.stdout,
    new RegExp(`^${made.id} +active +30 8 1 1 \\* +Europe/Berlin +\\d{4}-01-01T07:30`, 'm'),
  );

  const ran = await berthJson(['schedules', 'run', made.id]);
  await until('its run has ended', async () => {
    const { body } = await service.api('GET', `/v1/runs/${ran.runId}`);
    return body.run.status === 'completed';
  });
  const ticks = await berth(['schedules', 'ticks', made.id]);
  assert.match(ticks.stdout, new RegExp(`manual +\\w+ +${ran.runId}`));

  assert.match((await berth(['schedules', 'pause', made.id])).stdout, /^status +paused\n[^]*^next +never$/m);
  assert.equal((await berthJson(['schedules', 'resume', made.id])).nextDueAt, made.nextDueAt);
  assert.deepEqual(await berthJson(['schedules', 'delete', made.id]), { id: made.id, deleted: true });
  assert.match((await berth(['schedules', 'show', made.id], { code: 1 })).stderr, /not_found/);
});

test('A webhook endpoint shows its secret once, what was not taken is listed and sent again, and it is rotated and deleted.', async (t) => {
  let isUp = false;
  const down = { status: 500, headers: { 'retry-after': '3600' }, body: 'not now' };
  const hook = await receiver(() => (isUp ? 200 : down));
  t.after(() => hook.close());
  const made = await berth([
    'webhook-endpoints',
    'create',
    hook.url,
    'run.completed',
    '--name',
    'Mine',
    '--json',
  ]);
  const { id, secret } = JSON.parse(made.stdout);
  const secrets = [secret];
  /** What is said of it later has none of its secrets. */
  const later = async (...args: string[]): Promise<string> => {
    const { stdout, stderr } = await berth(['webhook-endpoints', ...args]);
    for (const one of secrets)
      assert.equal(`${stdout}${stderr}`.includes(one.slice(6)), false, args.join(' '));
    return stdout;
  };
  assert.match(await later('list'), new RegExp(`^${id} +enabled +run\\.completed +${hook.url} +Mine$`, 'm'));
  const [sent] = JSON.parse(await later('test', id, '--json'));
  await until('it was tried', async () => {
    const { body } = await service.api('GET', `/v1/webhook-endpoints/${id}/deliveries/${sent.id}`);
    return body.delivery.lastStatus === 500;
  });
  const [{ body, headers, event }] = hook.received as [(typeof hook.received)[0]];
  assert.deepEqual(new Webhook(secret).verify(body, headers as Record<string, string>), event);
  const pending = await later('deliveries', id, '--state', 'pending');
  assert.match(pending, new RegExp(`^${sent.id} .* webhook_endpoint\\.test +pending +1 .*answered 500`, 'm'));
  assert.match(await later('show', id), /^failing since +\d{4}-/m);

  isUp = true;
  await later('retry', id, sent.id);
  await until('it was taken', async () => {
    const { body } = await service.api('GET', `/v1/webhook-endpoints/${id}/deliveries/${sent.id}`);
    return body.delivery.state === 'delivered';
  });
  assert.match(await later('delivery', id, sent.id), /^1 .* 500 .*"not now"[^]*^2 .* 200 /m);
  assert.deepEqual(JSON.parse(await later('retry', id, '--since', '2026-01-01T00:00:00Z', '--json')), {
    retried: 0,
  });

  const rotated = await berthJson(['webhook-endpoints', 'rotate-secret', id]);
  assert.match(rotated.secret, /^whsec_/);
  assert.notEqual(rotated.secret, secret);
  secrets.push(rotated.secret);
  await later('show', id, '--json');
  await later('delete', id);
  assert.equal((await service.api('GET', `/v1/webhook-endpoints/${id}`)).status, 404);
  for (const one of secrets) assert.equal(service.logs().includes(one.slice(6)), false);
});

test('doctor, help and wrong usage: data on standard output, notes on standard error, and the exit code says how it went.', async () => {
  const env = { BERTH_DATA_DIR: join(shop.home, 'doctor-data') };
  assert.equal((await berthJson(['doctor'], { env })).ok, true);
  assert.match((await berth(['help'])).stdout, /berth agents create/);
  assert.match((await berth(['agents', 'create', '--help'])).stdout, /^berth agents create/);
  for (const args of [['agents'], ['agents', 'show'], ['agents', 'list', '--nope'], ['nonsense']]) {
    const wrong = await berth(args, { code: 1 });
    assert.equal(wrong.stdout, '');
    assert.match(wrong.stderr, /berth/);
  }
  const first = await berth(['--json', 'agents', 'list']);
  assert.ok(Array.isArray(JSON.parse(first.stdout)));
  const away = await berth(['whoami'], { env: { BERTH_URL: 'http://127.0.0.1:1' }, code: 1 });
  assert.match(away.stderr, /No connection to http:\/\/127\.0\.0\.1:1/);
});
