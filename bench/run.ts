import { diskFolder } from '../packages/server/test/support/service.ts';
import type { Figure } from './lib/figure.ts';
import { machine } from './lib/machine.ts';
import { watchOtherWork } from './lib/other-work.ts';
import { table } from './lib/table.ts';
import { openWorld } from './lib/world.ts';
import type { World } from './lib/world.ts';
import { agentReads } from './measure/agent-reads.ts';
import { coldStart } from './measure/cold-start.ts';
import { cpuPerMessage } from './measure/cpu-per-message.ts';
import { hops } from './measure/hops.ts';
import { idleMemory } from './measure/idle-memory.ts';
import { inbound, inboundBacklog } from './measure/inbound.ts';
import { latency } from './measure/latency.ts';
import { longConversation } from './measure/long-conversation.ts';
import { manyStreams } from './measure/many-streams.ts';
import { neighbourRows, neighbours } from './measure/neighbours.ts';
import { sandboxLive } from './measure/sandbox-live.ts';
import { sandboxStart } from './measure/sandbox-start.ts';
import { secondStart } from './measure/second-start.ts';
import { surfaces } from './measure/surfaces.ts';
import { throughput } from './measure/throughput.ts';

/** These start what they need themselves, before anything else runs. */
const alone: Record<string, (rows?: readonly string[]) => Promise<Figure[]>> = {
  'sandbox-start': sandboxStart,
  'sandbox-live': sandboxLive,
  // Its rows can be asked for by name.
  neighbours,
  inbound,
  'inbound-backlog': inboundBacklog,
  hops,
  // Its service speaks gRPC too, whose code would be in the memory that those below measure.
  surfaces: () => inWorld({ BERTH_A2A_GRPC_PORT: '0' }, surfaces),
};

/** In this order: what needs a fresh service comes first, what fills its memory last. */
const measurements: Record<string, (world: World) => Promise<Figure[]>> = {
  'idle-memory': idleMemory,
  'many-streams': manyStreams,
  'agent-reads': agentReads,
  latency,
  'long-conversation': longConversation,
  throughput,
  'cpu-per-message': cpuPerMessage,
  'cold-start': coldStart,
  'second-start': secondStart,
};

const names = [...Object.keys(alone), ...Object.keys(measurements)];

const ROWS = 'neighbours:';

const usage = `Usage: npm run bench -- [--json] [name …]
Names: ${names.join(', ')} (without one: all)
Rows of neighbours: neighbours:${neighbourRows.join(',')}
`;

/** A bench that hangs must not hold its caller: everything that it started ends with this process. */
const MAX_MS = 15 * 60_000;

async function main(argv: string[]): Promise<number> {
  const asJson = argv.includes('--json');
  const asked = argv.filter((word) => word !== '--json');
  const [rows] = asked.flatMap((word) => (word.startsWith(ROWS) ? [word.slice(ROWS.length).split(',')] : []));
  const words = asked.map((word) => (word.startsWith(ROWS) ? 'neighbours' : word));
  const unknown =
    words.find((name) => !names.includes(name)) ?? rows?.find((row) => !neighbourRows.includes(row));
  if (unknown !== undefined) {
    process.stderr.write(`There is no measurement "${unknown}".\n${usage}`);
    return 2;
  }
  setTimeout(() => {
    process.stderr.write('The bench takes too long and is ended.\n');
    process.exit(1);
  }, MAX_MS).unref();
  const isAsked = ([name]: [string, unknown]) => words.length === 0 || words.includes(name);
  const facts = machine(diskFolder);
  const otherWork = await watchOtherWork();
  const figures: Figure[] = [];
  for (const [name, measure] of Object.entries(alone).filter(isAsked)) {
    process.stderr.write(`${name} …\n`);
    figures.push(...(await measure(name === 'neighbours' ? rows : undefined)));
  }
  const shared = Object.entries(measurements).filter(isAsked);
  if (shared.length > 0) figures.push(...(await inWorld({}, (world) => all(shared, world))));
  const report = asJson ? `${JSON.stringify({ machine: facts, figures }, null, 2)}\n` : table(facts, figures);
  process.stdout.write(report);
  const percent = Math.round((await otherWork.end()) * 100);
  process.stderr.write(`Other work on the machine took about ${percent} % of its processors meanwhile.\n`);
  return 0;
}

async function all(asked: [string, (world: World) => Promise<Figure[]>][], world: World): Promise<Figure[]> {
  const figures: Figure[] = [];
  for (const [name, measure] of asked) {
    process.stderr.write(`${name} …\n`);
    figures.push(...(await measure(world)));
  }
  return figures;
}

async function inWorld(
  env: Record<string, string>,
  measure: (world: World) => Promise<Figure[]>,
): Promise<Figure[]> {
  const world = await openWorld(env);
  try {
    await world.warmUp(world.agentId, 200);
    return await measure(world);
  } finally {
    const noise = world.service
      .logs()
      .split('\n')
      .filter((line) => /"level":"(warn|error)"/.test(line));
    if (noise.length > 0) process.stderr.write(`The service logged:\n${noise.slice(0, 20).join('\n')}\n`);
    await world.end();
  }
}

process.exitCode = await main(process.argv.slice(2));
