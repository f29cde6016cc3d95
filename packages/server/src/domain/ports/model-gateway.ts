import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Meter } from '../events.ts';

/** For whom a model call is made: known from the socket that it came in by. */
export interface ModelCaller {
  orgId: string;
  agentId: string;
  sandboxId: string;
  /** `<provider>/<model_name>` of the agent; side calls to other models are rewritten to it. */
  model: string;
  /** SHA-256 (base64url) of the token that the sandbox was started with. */
  tokenHash: string;
  /** Provider keys from the agent's own secrets, by the provider's usual variable name, e.g. ANTHROPIC_API_KEY. */
  secretKeys: Record<string, string>;
}

export interface ModelUsage {
  model: string;
  /** `X-Berth-Session` of the request: the ACP session, when the harness says so. */
  sessionId: string | null;
  /** What `reserve` set aside for the call; recording the usage ends it. Null: nothing was. */
  reservationId: string | null;
  entries: { meter: Meter; quantity: number; unitPricePerMillionMicros: bigint | null; costMicros: bigint }[];
  priceVersion: string;
}

export interface ModelGatewayHooks {
  /** Called for each call that a model is to answer or to count, before anything is done for it; `sessionId` as in its usage. */
  onCall(caller: ModelCaller, sessionId: string | null): void;
  /**
   * Called once per upstream call, when it ended or was aborted; not at all when nothing was used, because the provider
   * answered with an error or was not reached. There may be two entries of a meter, with different prices (cache writes).
   */
  onUsage(caller: ModelCaller, usage: ModelUsage): void;
  /** Asked before each upstream call; a refusal is answered in the wire's own error shape with status 402. */
  reserve(caller: ModelCaller, estimateMicros: bigint): Promise<ModelReservation>;
}

export type ModelReservation =
  | {
      ok: true;
      /** Null: there is no budget, and nothing was set aside. */
      id: string | null;
      /** For a call that ended without a use to report; otherwise the usage names the reservation. */
      release: () => void;
    }
  | { ok: false; message: string };

/** The protocol that a provider speaks; bytes are passed through, never translated. */
export type ModelWire = 'anthropic' | 'openai-chat';

export interface ModelProviderInfo {
  name: string;
  wire: ModelWire;
  /** Null for `demo`, which is inside the gateway. */
  baseUrl: string | null;
  /** The operator's key; an agent's own secret of the name `keyVariable` serves as well. */
  hasKey: boolean;
  /** Empty when the provider needs no key. */
  keyVariable: string;
  /** `<provider>/<model_name>`. */
  defaultModel: string;
}

export interface ModelGateway {
  /** Answers one request that came in by the socket of `caller`'s sandbox. Never throws. */
  handle(caller: ModelCaller, request: IncomingMessage, response: ServerResponse): void;
  /** What is configured: for `doctor`, start-up lines and the default model. */
  providers(): ModelProviderInfo[];
  defaultModel(): string;
  /** Ends calls that are under way and kept-alive connections to providers. */
  close(): void;
}
