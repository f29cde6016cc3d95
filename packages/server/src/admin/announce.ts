import type { AddressInfo } from 'node:net';
import { fileURLToPath } from 'node:url';
import type { Service } from '../compose.ts';
import type { Config } from '../config.ts';

// By its path, so that the printed lines work from any folder.
const berth = quoted(fileURLToPath(new URL('../../../../node_modules/.bin/berth', import.meta.url)));

/** Says to a person where the service is and, when everything was just made, how to try it. */
export function announce(config: Config, service: Service, address: AddressInfo): void {
  const { made, keyFile } = service.bootstrap;
  const keyPath = config.paths.bootstrapKey;
  const host = address.address.includes(':') ? `[${address.address}]` : address.address;
  const lines = [
    '',
    `Berth listens on http://${host}:${address.port}`,
    `  address   ${config.baseUrl}   (API reference: ${config.baseUrl}/docs)`,
    `  key       ${made ? `${made.keyValue}   (shown this once; also in ${keyPath})` : whereKeyIs(config, keyFile)}`,
    `  model     ${service.gateway.defaultModel()}`,
  ];
  if (made) lines.push(...tryIt(config, made.agentId));
  process.stdout.write(`${lines.join('\n')}\n`);
}

function whereKeyIs({ dataDir, paths }: Config, keyFile: string): string {
  if (keyFile === 'usable') return `in ${paths.bootstrapKey}`;
  const command = `BERTH_DATA_DIR=${quoted(dataDir)} ${berth} host keys create`;
  return `${paths.bootstrapKey} is ${keyFile}; make another with: ${command}`;
}

function tryIt({ baseUrl, paths }: Config, agentId: string): string[] {
  const key = `$(cat ${quoted(paths.bootstrapKey)})`;
  return [
    '',
    'Try it:',
    `  curl -s ${baseUrl}/api/v1/chat/send -H "Authorization: Bearer ${key}" \\`,
    `    -H 'Content-Type: application/json' \\`,
    `    -d '{"agentId":"${agentId}","conversationId":null,"content":"run: sh hello.sh"}'`,
    '',
    `  BERTH_URL=${baseUrl} BERTH_API_KEY=${key} ${berth} chat ${agentId} "run: sh hello.sh"`,
    '',
  ];
}

/** For a shell. */
function quoted(path: string): string {
  return /^[\w./-]+$/.test(path) ? path : `'${path.replaceAll("'", `'\\''`)}'`;
}
