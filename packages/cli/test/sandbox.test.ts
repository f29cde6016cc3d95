import assert from 'node:assert/strict';
import type { ServerResponse } from 'node:http';
import { test } from 'node:test';
import { fakeService, json, stream, type Seen } from '../../sdk/test/fake-service.ts';
import { runBerth } from './run-berth.ts';

const agentId = '00000000-0000-7000-8000-000000000001';
type Answer = (response: ServerResponse) => void;

/** The agent, and for everything below its sandbox one answer after another. */
function answersOf(...answers: Answer[]) {
  return (response: ServerResponse, { path }: Seen): void => {
    if (path === `/v1/agents/${agentId}`) return json(200, { agent: { id: agentId, name: 'A' } })(response);
    (answers.shift() ?? json(500, { error: 'Asked too often.' }))(response);
  };
}

const line = (place: string, text: string) =>
  `id: ${place}\nevent: line\ndata: ${JSON.stringify({ at: '2026-01-01T00:00:00.000Z', text })}\n\n`;

test('a log that is followed goes on after its last line when the service was killed, and ends with the sandbox', async (t) => {
  const away: Answer = (response) => response.destroy();
  const { url, seen } = await fakeService(t, [
    answersOf(
      stream([line('s:1:7', 'one')], { cut: true }),
      // Down for as long as one request tries again by itself.
      ...[away, away, away, away],
      stream([line('s:2:1', 'two')], { cut: true }),
      stream([line('s:2:2', 'three')]),
    ),
  ]);
  const { child, ended } = runBerth(t, url, ['sandbox', 'logs', agentId, '-f', '--after', 's:1:6'], 'pipe');
  let shown = '';
  child.stdout!.setEncoding('utf8').on('data', (text: string) => (shown += text));
  const { code, told } = await ended;
  assert.deepEqual([code, shown.match(/one|two|three/g)], [0, ['one', 'two', 'three']]);
  assert.match(told, /^(The connection broke off\. Trying again\.\n)+$/);
  const asked = seen.filter(({ path }) => path.includes('/logs'));
  assert.ok(asked.every(({ path }) => path.endsWith('?after=s%3A1%3A6')));
  const places = asked.map(({ headers }) => headers['last-event-id']);
  assert.deepEqual(places, [undefined, 's:1:7', 's:1:7', 's:1:7', 's:1:7', 's:1:7', 's:2:1']);
});

test('Ctrl-C ends a log that is followed without a word', async (t) => {
  const open: Answer = (response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.write(line('s:1:7', 'one'));
  };
  const { url } = await fakeService(t, [answersOf(open)]);
  const { child, ended } = runBerth(t, url, ['sandbox', 'logs', agentId, '-f'], 'pipe');
  child.stdout!.once('data', () => child.kill('SIGINT'));
  assert.deepEqual(await ended, { code: 2, told: '' });
});

test('a log that is no longer there to be followed is an error in one line', async (t) => {
  const gone = json(404, { error: 'There is no such agent.', code: 'not_found' });
  const { url } = await fakeService(t, [answersOf(stream([line('s:1:7', 'one')], { cut: true }), gone)]);
  const { code, told } = await runBerth(t, url, ['sandbox', 'logs', agentId, '-f']).ended;
  assert.equal(code, 1);
  assert.equal(told, 'The connection broke off. Trying again.\nThere is no such agent. (not_found)\n');
});

test('a command whose connection breaks is not repeated, and that is said in one line', async (t) => {
  const output = `event: stdout\ndata: ${JSON.stringify({ data: 'aGk=' })}\n\n`;
  const { url, seen } = await fakeService(t, [answersOf(stream([output], { cut: true }))]);
  const { code, told } = await runBerth(t, url, ['sandbox', 'exec', agentId, '--', 'sleep', '60']).ended;
  assert.equal(code, 1);
  assert.match(told, /^The connection broke off before the command had ended: [^\n]+ is not repeated\.\n$/);
  assert.equal(seen.filter(({ path }) => path.endsWith('/exec')).length, 1);
});
