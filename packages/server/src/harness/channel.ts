import type { Json } from './clean.ts';
import type { RpcPeer } from './rpc-peer.ts';

export interface HarnessCapabilities {
  /** Takes earlier turns and interrupted attempts as such (docs/design/sandbox-launch.md). */
  history: boolean;
  /** Has `session/close`. */
  close: boolean;
}

/** Everything that an `AcpHarness` talks to. */
export interface Channel {
  peer: RpcPeer;
  /** False: it is of no turn. */
  onUpdate: (sessionId: string, update: unknown, lineChars: number) => boolean;
  onPermission: (params: Json) => Promise<Json>;
  /** The harness waits until what it told is on record (docs/design/sandbox-launch.md). */
  onRecord: (params: Json) => Promise<Json>;
  /** A turn begins: what was said beside the others is forgotten. */
  forgive: () => void;
  /** Ends all open requests with the error. */
  fail: (error: Error) => void;
  /** No more input for the harness. */
  end: () => void;
}
