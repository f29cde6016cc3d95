import assert from 'node:assert/strict';
import { checkList, place } from './acp-checks.ts';
import { Peer } from './acp-peer.ts';
import { until } from './until.ts';

const { checks, check } = checkList();

/** JSON-RPC, `initialize` and `session/new`. */
export const connectionChecks = checks;

// JSON-RPC and the connection.
check('a text id is echoed as it is', async ({ peer }) => {
  assert.equal((await peer.call('session/list', {}, 'id with spaces ü')).id, 'id with spaces ü');
});
check('a number id is echoed as a number', async ({ peer }) => {
  assert.equal((await peer.call('session/list', {}, 4711)).id, 4711);
});
check('the id 0 is an id', async ({ peer }) => {
  assert.equal((await peer.call('session/list', {}, 0)).id, 0);
});
check('an unknown method is -32601', async ({ peer }) => {
  assert.equal((await peer.error('session/frobnicate', {})).code, -32601);
});
check('an extension request is answered', async ({ peer }) => {
  assert.equal((await peer.error('_example.com/do', { a: 1 })).code, -32601);
});
check('an unknown notification gets no reply and breaks nothing', async ({ peer }) => {
  const before = peer.messages().length;
  peer.notify('_example.com/note', {});
  peer.notify('nobody/knows', {});
  await peer.result('session/list', {});
  assert.equal(peer.messages().length, before + 1);
});
check('junk is -32700 and the connection goes on', async ({ peer }) => {
  if (!peer.wire.sendText) return;
  peer.wire.sendText('{"jsonrpc": "2.0", "id": 1, "meth');
  const answer = await peer.answerTo(null);
  assert.equal(answer.error.code, -32700);
  await peer.result('session/list', {});
});
check('what is no message is -32600 and the connection goes on', async ({ fresh }) => {
  const peer = await fresh();
  if (peer.wire.sendText) {
    peer.wire.sendText('{"jsonrpc": "2.0"}');
    assert.equal((await peer.answerTo(null)).error.code, -32600);
  }
  await peer.result('session/list', {});
  peer.wire.leave();
});
check('an error has the id of its request, whatever is wrong beside it', async ({ fresh }) => {
  const peer = await fresh();
  const { wire } = peer;
  if (wire.sendText) {
    const deep = `${'['.repeat(600)}${']'.repeat(600)}`;
    const faults: [string, number][] = [
      [
        '{"jsonrpc":"2.0","id":"nul","method":"session/new","params":{"cwd":"/\\u0000","mcpServers":[]}}',
        -32602,
      ],
      ['{"jsonrpc":"2.0","id":"half","method":"session/list","params":{"cwd":"/\\ud800"}}', -32602],
      [`{"jsonrpc":"2.0","id":"deep","method":"session/list","params":{"cwd":${deep}}}`, -32600],
      ['{"jsonrpc":"1.0","id":"old","method":"session/list","params":{}}', -32600],
    ];
    for (const [line, code] of faults) {
      wire.sendText(line);
      const { id } = JSON.parse(line) as { id: string };
      assert.equal((await peer.answerTo(id)).error.code, code, line);
    }
    wire.sendText(`{"jsonrpc":"2.0","id":"${'x'.repeat(300)}","method":"session/list","params":{}}`);
    assert.equal((await peer.answerTo(null)).error.code, -32600);
  }
  await peer.result('session/list', {});
  wire.leave();
});
check('a batch is refused as one', async ({ fresh }) => {
  const peer = await fresh();
  if (peer.wire.sendText) {
    peer.wire.sendText('[{"jsonrpc":"2.0","id":1,"method":"session/list","params":{}}]');
    assert.equal((await peer.answerTo(null)).error.code, -32600);
    assert.equal(
      peer.messages().some((message) => message.id === 1),
      false,
    );
  }
  peer.wire.leave();
});
check('a response that nobody waits for breaks nothing', async ({ peer }) => {
  peer.wire.send({ jsonrpc: '2.0', id: 'nobody asked', result: {} });
  await peer.result('session/list', {});
});
check('bad parameters are -32602', async ({ peer }) => {
  assert.equal((await peer.error('session/new', { cwd: 7 })).code, -32602);
});
check('missing parameters are -32602', async ({ peer }) => {
  assert.equal((await peer.error('session/prompt', { sessionId: await peer.open() })).code, -32602);
});
check('unknown fields and _meta are accepted', async ({ peer }) => {
  await peer.result('session/list', { future: true, _meta: { 'example.com': { trace: 1 } } });
});
check('requests are answered while a prompt is under way', async ({ varied: peer }) => {
  peer.onRequest = () => null;
  const sessionId = await peer.open();
  const id = peer.begin('session/prompt', { sessionId, prompt: [{ type: 'text', text: 'ask' }] });
  await peer.result('session/list', {});
  await until('it asks', () => peer.requests('session/request_permission', sessionId).length === 1);
  await peer.result('session/list', {});
  assert.equal(
    peer.messages().some((message) => message.id === id && !message.method),
    false,
  );
  const [asked] = peer.requests('session/request_permission', sessionId);
  const result = { outcome: { outcome: 'selected', optionId: 'yes' } };
  peer.wire.send({ jsonrpc: '2.0', id: asked.id, result });
  await peer.answerTo(id);
});

// initialize
check('initialize gives version 1 for 1, with name and version of the agent', async ({ fresh }) => {
  const peer = await fresh();
  const answer = peer.messages()[0].result;
  assert.equal(answer.protocolVersion, 1);
  assert.ok(answer.agentInfo.name && answer.agentInfo.version);
  peer.wire.leave();
});
check('a version from the future gets ours, not an echo', async ({ wire }) => {
  const peer = new Peer(await wire());
  assert.equal((await peer.initialize({}, 65535)).protocolVersion, 1);
  peer.wire.leave();
});
check(
  'what comes before initialize is told to wait, and a failed initialize may be followed by a good one',
  async ({ wire }) => {
    const peer = new Peer(await wire());
    if (peer.wire.sendText) {
      peer.notify('session/cancel', { sessionId: 'none' });
      assert.equal((await peer.error('session/new', place)).code, -32600);
      assert.equal((await peer.error('initialize', { protocolVersion: 'one' })).code, -32602);
      assert.equal((await peer.error('initialize', {})).code, -32602);
      assert.equal((await peer.error('session/list', {})).code, -32600);
    }
    assert.equal((await peer.initialize()).protocolVersion, 1);
    if (peer.wire.sendText)
      assert.equal((await peer.error('initialize', { protocolVersion: 1 })).code, -32600);
    await peer.result('session/list', {});
    peer.wire.leave();
  },
);
check('what a client says of itself in a wrong form is read as not said', async ({ wire }) => {
  const peer = new Peer(await wire());
  const params = { protocolVersion: 1, clientInfo: { name: 7 }, clientCapabilities: 'all', _meta: [] };
  assert.equal((await peer.result('initialize', params)).protocolVersion, 1);
  await peer.result('session/list', {});
  peer.wire.leave();
});
check('there is no way to authenticate but the key of the connection', async ({ fresh }) => {
  const peer = await fresh();
  assert.deepEqual(peer.messages()[0].result.authMethods, []);
  assert.equal((await peer.error('authenticate', { methodId: 'none' })).code, -32601);
  peer.wire.leave();
});
check('what is advertised is what is there', async ({ fresh }) => {
  const peer = await fresh();
  const { agentCapabilities } = peer.messages()[0].result;
  assert.equal(agentCapabilities.loadSession, true);
  assert.deepEqual(Object.keys(agentCapabilities.sessionCapabilities).sort(), [
    'close',
    'delete',
    'list',
    'resume',
  ]);
  assert.deepEqual(agentCapabilities.mcpCapabilities, { http: false, sse: false });
  assert.equal(
    (await peer.error('session/set_mode', { sessionId: await peer.open(), modeId: 'x' })).code,
    -32601,
  );
  peer.wire.leave();
});
check('initialize may come with nothing but the version', async ({ wire }) => {
  const peer = new Peer(await wire());
  assert.equal((await peer.result('initialize', { protocolVersion: 1 })).protocolVersion, 1);
  peer.wire.leave();
});

// session/new
check('session/new gives ids that are unique and not empty', async ({ peer }) => {
  const ids = [await peer.open(), await peer.open(), await peer.open()];
  assert.ok(ids.every((id) => id.length > 0));
  assert.equal(new Set(ids).size, 3);
});
check('session/new takes a folder of Windows', async ({ peer }) => {
  await peer.open('C:\\Users\\me');
});
check('session/new refuses a folder that is not absolute', async ({ peer }) => {
  const error = await peer.error('session/new', { cwd: 'project', mcpServers: [] });
  assert.equal(error.code, -32602);
  assert.match(error.message, /cwd/);
});
check(
  'session/new takes servers of tools on the client and says that it leaves them out',
  async ({ peer }) => {
    const mcpServers = [{ name: 'files', command: '/bin/files', args: [], env: [] }];
    const made = await peer.result('session/new', { cwd: '/x', mcpServers });
    assert.deepEqual(made._meta['berth.dev'].ignoredMcpServers, ['files']);
  },
);
check('session/new refuses a server of tools over HTTP, which is not advertised', async ({ peer }) => {
  const mcpServers = [{ type: 'http', name: 'far', url: 'https://example.com', headers: [] }];
  assert.equal((await peer.error('session/new', { cwd: '/x', mcpServers })).code, -32602);
});
check('no modes and no options are told where there are none', async ({ peer }) => {
  const made = await peer.result('session/new', place);
  assert.equal(made.modes ?? null, null);
  assert.equal(made.configOptions ?? null, null);
});
