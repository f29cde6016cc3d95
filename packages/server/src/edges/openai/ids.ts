import { isId } from '../../domain/ids.ts';

/** OpenAI's ids have a prefix that tells the kind; after it stand the digits of ours. */
export type IdPrefix = 'resp_' | 'msg_' | 'conv_' | 'chatcmpl-';

export function outerId(prefix: IdPrefix, id: string): string {
  return prefix + id.replaceAll('-', '');
}

/** Our id in one of theirs, or ours as it is; null for what is neither. */
export function innerId(prefix: IdPrefix, text: string): string | null {
  const digits = text.startsWith(prefix) ? text.slice(prefix.length) : text;
  const id = digits.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5');
  return isId(id) ? id : null;
}

/** Seconds since 1970, as OpenAI has times. */
export function seconds(date: Date): number {
  return Math.floor(date.getTime() / 1000);
}
