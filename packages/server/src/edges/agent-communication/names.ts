import { notFound } from '../../domain/errors.ts';
import type { Agent } from '../../domain/nouns.ts';
import type { HostCall } from '../hosts/host-edge.ts';

/** A DNS label (RFC 1123), which an id is and a name need not be. */
export function nameOf(agent: Agent): string {
  return agent.id;
}

/** The agent's name as a DNS label; null when nothing is left of it. */
export function slugOf(name: string): string | null {
  const slug = name
    .normalize('NFKD')
    .replace(/\p{M}+/gu, '')
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, '-')
    .replace(/^-+|-+$/g, '')
    .slice(0, 63)
    .replace(/-+$/, '');
  return slug || null;
}

/** An agent goes by its id, and on its own host by its name too. */
export function requireName({ agent }: HostCall, name: string): void {
  if (name.toLowerCase() !== agent.id && name !== slugOf(agent.name)) throw notFound();
}
