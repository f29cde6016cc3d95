import { existsSync } from 'node:fs';
import { listen, pipeTo } from './pipe-socket.ts';

const usualPort = 3128;
const notProxied = 'localhost,127.0.0.1,::1';

/**
 * Opens the way to the host's proxy for child processes (docs/egress.md) and returns the variables by which programs
 * find it. BERTH_EGRESS says how; without it there is none here.
 */
export async function openEgress(
  socketPath: string,
  settings: Record<string, string | undefined>,
): Promise<Record<string, string>> {
  const { BERTH_EGRESS: mode, BERTH_EGRESS_PORTS: ports = '80,443' } = settings;
  if (mode === undefined || !existsSync(socketPath)) return {};
  const port = await listen(pipeTo(socketPath), usualPort, '127.0.0.1').catch(() =>
    // Somebody listens there; where the sandbox shares its network, somebody else's may.
    listen(pipeTo(socketPath), 0, '127.0.0.1'),
  );
  if (mode === 'transparent') {
    const { openTransparent } = await import('./transparent.ts');
    // Programs that know a proxy still have it.
    await openTransparent(socketPath, ports.split(',').map(Number)).catch((error: unknown) => {
      process.stderr.write(`berth: transparent egress is not there: ${String(error)}\n`);
    });
  }
  return proxyVariables(`http://127.0.0.1:${port}`);
}

/** In both spellings, since some programs read only one. Node needs to be told that it may look at them. */
function proxyVariables(url: string): Record<string, string> {
  const names = { HTTP_PROXY: url, HTTPS_PROXY: url, ALL_PROXY: url, NO_PROXY: notProxied };
  const small = Object.entries(names).map(([name, value]) => [name.toLowerCase(), value]);
  return { ...names, ...Object.fromEntries(small), NODE_USE_ENV_PROXY: '1' };
}
