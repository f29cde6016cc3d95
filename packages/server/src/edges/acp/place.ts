import type { AgentContext, ClientCapabilities } from '@agentclientprotocol/sdk';
import type { Log } from '../../domain/log.ts';
import type { Caller, Services } from '../../services/api.ts';

/** What all sessions of one connection share. */
export interface Place {
  services: Pick<Services, 'acpSessions' | 'runs' | 'events'>;
  caller: Caller;
  agentId: string;
  /** Names the connection in logs and in errors of ours. */
  requestId: string;
  client: AgentContext;
  /** As the client told with `initialize`. */
  capabilities: ClientCapabilities;
  log: Log;
  /** Ends the connection: the client is to open another one. */
  close(): void;
}
