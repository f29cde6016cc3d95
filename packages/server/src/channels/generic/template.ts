import type { InboundRequest } from '../../domain/ports/channel.ts';
import { at } from '../body.ts';

const placeholder = /\{\{\s*([^{}]{1,200}?)\s*\}\}/g;

/**
 * Puts values of the payload in: `{{data.items.0.name}}`, `{{body}}` for a plain text, `{{header:X-Event}}`. What is
 * not there becomes nothing; objects become JSON. There is no logic in a template, so it cannot run away.
 */
export function fillTemplate(template: string, payload: unknown, request: InboundRequest): string {
  return template.replace(placeholder, (_, path: string) => {
    if (path.startsWith('header:')) return request.headers.get(path.slice(7).trim().toLowerCase()) ?? '';
    if (path === 'body' && typeof payload === 'string') return payload;
    return show(
      at(payload, ...path.split('.').map((step) => (/^\d{1,6}$/.test(step) ? readStep(step) : step))),
    );
  });
}

/** Names, in lower case, of the headers that a template takes values of. */
export const headersIn = (template: string): string[] =>
  [...template.matchAll(placeholder)].flatMap(([, path = '']) =>
    path.startsWith('header:') ? path.slice(7).trim().toLowerCase() : [],
  );

/** A number names a place in a list. */
const readStep = (step: string): string | number => Number(step);

function show(value: unknown): string {
  if (value === undefined || value === null) return '';
  return typeof value === 'object' ? JSON.stringify(value) : String(value as string | number | boolean);
}
