export type RpcId = string | number | null;

/** JSON-RPC 2.0, section 4: a text, a whole number or null. Undefined: what stands there is none of these. */
export function rpcId(value: unknown): RpcId | undefined {
  if (value === null || typeof value === 'string') return value;
  return Number.isSafeInteger(value) ? (value as number) : undefined;
}

/** The id that an answer to `body` has: its own when there is one to be read, else null (section 5). */
export function answerId(body: unknown): RpcId {
  if (typeof body !== 'object' || body === null || !('id' in body)) return null;
  return rpcId(body.id) ?? null;
}
