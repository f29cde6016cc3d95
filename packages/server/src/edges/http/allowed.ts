import { routes } from '../routes.ts';

const known = new Map<string, { pattern: RegExp; methods: Set<string> }>();
for (const route of routes) {
  const shape = route.path.replace('{path}', '.*').replace(/\{\w+\}/g, '[^/]+');
  const entry = known.get(shape) ?? { pattern: new RegExp(`^${shape}$`), methods: new Set() };
  entry.methods.add(route.method.toUpperCase());
  if (route.method === 'get') entry.methods.add('HEAD');
  known.set(shape, entry);
}

/** The methods that a path takes, for `Allow`; none when there is no such path. Asked only when no route matched. */
export function findAllowed(path: string, pagePaths: string[]): string[] {
  if (pagePaths.includes(path)) return ['GET', 'HEAD'];
  const methods = new Set<string>();
  for (const entry of known.values()) {
    if (entry.pattern.test(path)) for (const method of entry.methods) methods.add(method);
  }
  return [...methods];
}
