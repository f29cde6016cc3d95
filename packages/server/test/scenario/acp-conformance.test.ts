import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { variedFiles } from '../support/acp-agents.ts';
import { connectionChecks } from '../support/acp-checks-connection.ts';
import { questionChecks } from '../support/acp-checks-question.ts';
import { sessionChecks } from '../support/acp-checks-session.ts';
import { turnChecks } from '../support/acp-checks-turn.ts';
import type { Bench } from '../support/acp-checks.ts';
import { Peer } from '../support/acp-peer.ts';
import { bridgeWire, httpWire, socketWire, type Target, type Wire } from '../support/acp-wire.ts';
import { workshop, type Workshop } from '../support/scenario.ts';
import { startService, type Service } from '../support/service.ts';

let service: Service;
let shop: Workshop;
let demo: string;
let varied: string;

before(async () => {
  service = await startService({ env: { BERTH_RATE_LIMIT: '100000/60' } });
  shop = await workshop(service);
  demo = (await shop.agent({ 'AGENTS.md': 'x\n' })).id;
  varied = (await shop.agent(variedFiles)).id;
});
after(async () => {
  await shop?.close();
  await service?.end();
});

const transports: Record<string, (target: Target) => Promise<Wire>> = {
  WebSocket: socketWire,
  'streamable HTTP': httpWire,
  'the bridge on standard input and output': bridgeWire,
};

const checks = [...connectionChecks, ...turnChecks, ...sessionChecks, ...questionChecks];
assert.ok(checks.length >= 50);

for (const [name, open] of Object.entries(transports)) {
  test(`Agent Client Protocol v1 over ${name}: every check holds.`, async (t) => {
    const target = (agentId: string): Target => ({
      port: service.port,
      agentId,
      key: service.key,
      home: shop.home,
    });
    const connect = async (agentId: string, capabilities = {}, by = open) => {
      const peer = new Peer(await by(target(agentId)));
      await peer.initialize(capabilities);
      return peer;
    };
    const bench: Bench = {
      peer: await connect(demo),
      varied: await connect(varied),
      forms: await connect(varied, { elicitation: { form: {} } }),
      connect: (agent) =>
        connect(agent === 'varied' ? varied : demo, {}, open === bridgeWire ? socketWire : open),
      fresh: () => connect(demo),
      wire: () => open(target(demo)),
      isBridge: open === bridgeWire,
    };
    for (const { name: what, run } of checks) await t.test(what, () => run(bench));
    for (const { wire } of [bench.peer, bench.varied, bench.forms]) {
      wire.leave();
      await wire.closed;
    }
  });
}
