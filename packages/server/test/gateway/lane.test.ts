import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { Flight } from '../../src/domain/flight.ts';
import { limits } from '../../src/domain/limits.ts';
import { everyWire, startGateway } from '../support/gateway.ts';
import { holdLane } from '../support/held-lane.ts';
import { startScriptedModel } from '../support/scripted-model.ts';
import { until } from '../support/until.ts';

/** Large requests of the sandbox wait until `letGo`. */
async function start(t: TestContext) {
  const provider = await startScriptedModel(() => ({ text: ['ok'] }));
  const load = new Flight(limits.modelBodies);
  const gateway = await startGateway({
    env: everyWire(provider),
    model: 'openai/m',
    gateway: { bodies: load },
  });
  const letGo = holdLane(t, { orgId: gateway.caller.orgId, id: gateway.caller.sandboxId });
  t.after(async () => {
    await gateway.close();
    await provider.close();
  });
  const send = (chars: number, signal?: AbortSignal) => {
    const messages = [{ role: 'user', content: 'x'.repeat(chars) }];
    const body = { model: 'm', messages };
    return gateway.send('/llm/openai/v1/chat/completions', { body, ...(signal && { signal }) });
  };
  return { gateway, load, letGo, send, provider };
}

const large = 1_000_000;

test('a small model call does not wait behind large ones, which are all answered', async (t) => {
  const { load, letGo, send, provider } = await start(t);
  const all = Array.from({ length: 20 }, () => send(large));
  await until('they are there', () => load.bytes > 20 * large);
  assert.equal((await send(100)).status, 200);
  assert.equal(provider.requests.length, 1);
  await letGo();
  for (const { status } of await Promise.all(all)) assert.equal(status, 200);
});

test('a large model call of a client that has gone is let go, and what it held is free again', async (t) => {
  const { gateway, load, letGo, send, provider } = await start(t);
  const leaving = new AbortController();
  const left = send(large, leaving.signal).catch(() => null);
  await until('it waits', () => load.bytes > large);
  leaving.abort();
  await left;
  await until('its bytes are free', () => load.bytes === 0);
  await letGo();
  assert.equal(provider.requests.length, 0);
  assert.equal(gateway.logged(), '');
});
