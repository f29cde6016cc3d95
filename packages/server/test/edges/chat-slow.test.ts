import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { test } from 'node:test';
import { edgeWorld } from '../support/edge-world.ts';
import { until } from '../support/until.ts';

test('a chat completion that the service cuts, as its client does not read it, goes on; one whose client leaves does not', async () => {
  const cancelled: string[] = [];
  const world = await edgeWorld({
    app: { maxUnreadBytes: 64 * 1024 },
    services: (services) => ({
      ...services,
      runs: { ...services.runs, cancel: (p, id) => (cancelled.push(id), services.runs.cancel(p, id)) },
    }),
  });
  const { agent, core, keys } = world;
  const port = Number(new URL(await world.listen()).port);
  const body = JSON.stringify({ model: 'agent', stream: true, messages: [{ role: 'user', content: 'x' }] });
  const head =
    `POST /v1/chat/completions HTTP/1.1\r\nHost: ${agent.id}.agents.localhost\r\nAuthorization: Bearer ${keys.use}\r\n` +
    `Content-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n`;
  const begun = async () => {
    const socket = connect(port, '127.0.0.1');
    socket.on('error', () => undefined);
    socket.pause();
    socket.write(head + body);
    await until('it is followed', () => core.followers.size === 1);
    return { socket, runId: [...core.followers][0]!.runId! };
  };
  const noneOpen = () =>
    new Promise<boolean>((resolve) =>
      world.listener().server.getConnections((_error, count) => resolve(count === 0)),
    );
  try {
    const slow = await begun();
    const text = 'a'.repeat(256 * 1024);
    await until('its stream is cut', () => {
      core.append(slow.runId, {
        type: 'message.delta',
        data: { runId: slow.runId, messageId: slow.runId, text },
      });
      return core.followers.size === 0;
    });
    await until('its connection is closed', noneOpen);
    assert.deepEqual(cancelled, []);
    slow.socket.destroy();

    const left = await begun();
    left.socket.destroy();
    await until('nobody follows any more', () => core.followers.size === 0);
    await until('it is cancelled', () => cancelled.length > 0);
    assert.deepEqual(cancelled, [left.runId]);
  } finally {
    await world.close();
  }
});
