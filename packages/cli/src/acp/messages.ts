export type Id = string | number | null;

/** A message of JSON-RPC 2.0, as loosely as it comes. */
export interface Message {
  jsonrpc?: unknown;
  id?: Id;
  method?: string;
  params?: Params;
  result?: Record<string, unknown> | null;
  error?: { code: number; message: string; data?: unknown };
}

export type Params = Record<string, unknown> & {
  sessionId?: string;
  cwd?: string;
  _meta?: Record<string, unknown> | null;
};

export interface Ours {
  /** The position of an update in the log of its conversation. */
  seq?: number;
  /** Names a question of the agent, whoever is asked. */
  requestId?: string;
  maxMessageBytes?: number;
  idempotencyKey?: string;
}

/** What the service says beyond the protocol. */
export function ours(holder: { _meta?: unknown } | null | undefined): Ours {
  const meta = holder?._meta as Record<string, unknown> | null | undefined;
  return (meta?.['berth.dev'] as Ours | undefined) ?? {};
}

export const isRequest = (message: Message): boolean =>
  typeof message.method === 'string' && message.id !== undefined;

export const isResponse = (message: Message): boolean =>
  message.method === undefined && message.id !== undefined && ('result' in message || 'error' in message);

/** 1 and "1" are two ids. */
export const keyOf = (id: Id | undefined): string => JSON.stringify(id ?? null);

export const failure = (id: Id, code: number, message: string): Message => ({
  jsonrpc: '2.0',
  id,
  error: { code, message },
});
