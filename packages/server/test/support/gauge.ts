import type { Service } from './service.ts';

/** What a running service tells of itself under this name; NaN when it tells nothing of the kind. */
export async function gauge(service: Service, name: string): Promise<number> {
  const { text } = await service.api('GET', '/metrics');
  return Number(new RegExp(`^${name} (\\d+)$`, 'm').exec(text)?.[1]);
}
