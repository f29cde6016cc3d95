import type { z } from 'zod';
import type { ErrorDetail } from '../../domain/errors.ts';
import { limits } from '../../domain/limits.ts';

type Schema = z.core.$ZodType;

/**
 * What is wrong with a value that has more entries, in lists and objects whose entries a schema looks at, than any request has reason to;
 * null when nothing is. Those of values of which it knows nothing do not count. It is looked at first, since a schema notes for each entry
 * what is wrong with it, in some microseconds.
 */
export function tooManyEntries(schema: Schema, value: unknown): ErrorDetail | null {
  return new Count().within(schema, value, []);
}

class Count {
  private left: number = limits.bodyEntries;

  within(schema: Schema, value: unknown, path: readonly string[]): ErrorDetail | null {
    if (typeof value !== 'object' || value === null) return null;
    const { def } = (schema as z.core.$ZodTypes)._zod;
    switch (def.type) {
      case 'optional':
      case 'nullable':
      case 'default':
        return this.within(def.innerType, value, path);
      case 'pipe':
        return this.within(def.in, value, path);
      case 'object':
        return this.each(Object.entries(def.shape), (name) => fieldOf(value, name), path);
      case 'array':
        if (!Array.isArray(value)) return null;
        return this.entries(def.element, value, path);
      case 'record':
        return this.entries(def.valueType, value, path);
      default:
        return null;
    }
  }

  private entries(schema: Schema, value: object, path: readonly string[]): ErrorDetail | null {
    const names = Object.keys(value);
    this.left -= names.length;
    if (this.left < 0) {
      const message = `must have fewer entries; all lists of a request may have ${limits.bodyEntries} together`;
      return { path: path.join('.') || 'body', message };
    }
    return this.each(
      names.map((name) => [name, schema]),
      (name) => fieldOf(value, name),
      path,
    );
  }

  private each(
    parts: [name: string, schema: Schema][],
    valueOf: (name: string) => unknown,
    path: readonly string[],
  ): ErrorDetail | null {
    for (const [name, schema] of parts) {
      const value = valueOf(name);
      if (typeof value !== 'object' || value === null) continue;
      const found = this.within(schema, value, [...path, name]);
      if (found !== null) return found;
    }
    return null;
  }
}

const fieldOf = (value: object, name: string): unknown => (value as Record<string, unknown>)[name];
