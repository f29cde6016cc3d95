import { invalid } from './errors.ts';
import { limits } from './limits.ts';

const LABEL = /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/;

/** Host names to which a secret may be sent: exact (`api.example.com`) or all below a domain (`*.example.com`). */
export function readHosts(path: string, hosts: string[]): string[] {
  if (hosts.length > limits.secretHosts)
    throw invalid(path, `must have at most ${limits.secretHosts} entries.`);
  const names = hosts.map((host, index) => readHost(`${path}.${index}`, host));
  return [...new Set(names)];
}

function readHost(path: string, text: string): string {
  const name = text.toLowerCase();
  const labels = (name.startsWith('*.') ? name.slice(2) : name).split('.');
  // A top-level domain alone is no host, and a wildcard over one would be nearly everything.
  const usable = name.length <= 253 && labels.length >= 2 && labels.every((label) => LABEL.test(label));
  if (!usable)
    throw invalid(path, 'must be a host name such as api.example.com, or a wildcard such as *.example.com.');
  return name;
}
