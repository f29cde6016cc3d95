import { mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { createOwnerOnly } from './admin/durable-file.ts';
import { ConfigError } from './config-values.ts';
import { isId, newId } from './domain/ids.ts';

/**
 * Names this node over restarts: what it held when it was killed is its own to take up again. One process at a time
 * has it, since the data directory is locked.
 */
export function readNodeId(dataDir: string): string {
  const path = join(dataDir, 'node-id');
  mkdirSync(dataDir, { recursive: true, mode: 0o711 });
  createOwnerOnly(path, `${newId()}\n`);
  const id = readFileSync(path, 'utf8').trim();
  if (!isId(id)) throw new ConfigError(`${path} must hold a UUID; remove it, and the node gets a new one.`);
  return id;
}
