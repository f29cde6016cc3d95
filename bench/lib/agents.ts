import type { World } from './world.ts';

const DEADLINE_MS = 30_000;

async function untilIt(is: () => Promise<boolean>, what: string): Promise<void> {
  const endMs = Date.now() + DEADLINE_MS;
  while (!(await is())) {
    if (Date.now() > endMs) throw new Error(`It did not come about that ${what}.`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/** Waits until the agent's deployment is ready: its first start then needs no more than a sandbox. */
export function deployed({ client }: World, agentId: string): Promise<void> {
  type Page = { deployments: { status: string }[] };
  return untilIt(async () => {
    const page = await client.json<Page>('GET', `/v1/agents/${agentId}/deployments`);
    return page.deployments[0]?.status === 'ready';
  }, 'the agent is deployed');
}

export function frozen({ client }: World, agentId: string): Promise<void> {
  return untilIt(async () => {
    const { sandbox } = await client.json<{ sandbox: { frozen: boolean } }>('GET', `/sandbox/${agentId}`);
    return sandbox.frozen;
  }, 'the sandbox is frozen');
}

export interface Executed {
  exitCode: number | null;
  stdout: string;
  stderr: string;
}

/** Runs a command in the agent's sandbox, which is started or thawed for it. */
export function execIn(
  { client }: World,
  agentId: string,
  command: string[],
  timeoutMs = 30_000,
): Promise<Executed> {
  return client.json<Executed>('POST', `/sandbox/${agentId}/exec`, { command, timeoutMs });
}

export async function execMs(world: World, agentId: string): Promise<number> {
  const startMs = performance.now();
  const { exitCode } = await execIn(world, agentId, ['/bin/true']);
  if (exitCode !== 0) throw new Error(`true ended with ${exitCode}.`);
  return performance.now() - startMs;
}
