import type { PermissionOption, PlanEntry } from '../events.ts';
import type { RunErrorCode } from '../errors.ts';
import type { ModelWire } from './model-gateway.ts';
import type { ReadOnlyBind, RunningSandbox } from './sandbox.ts';

/** What a harness tells during a turn; the runner makes events of it. */
export type HarnessUpdate =
  | { kind: 'text'; text: string }
  | { kind: 'thought'; text: string }
  | {
      kind: 'tool';
      phase: 'started' | 'updated' | 'finished';
      toolCallId: string;
      title: string;
      toolKind: string;
      status: 'pending' | 'running' | 'completed' | 'failed';
      input?: unknown;
      output?: unknown;
    }
  | { kind: 'plan'; entries: PlanEntry[] };

export interface PermissionRequest {
  toolCallId: string;
  title: string;
  options: PermissionOption[];
}

/** What came before, rebuilt from the event log; also what an interrupted attempt of this turn had already done. */
export interface HistoryTurn {
  role: 'user' | 'assistant';
  content: string;
  tools: HistoryTool[];
}

export interface HistoryTool {
  toolCallId: string;
  title: string;
  input: unknown;
  output: unknown;
  /** `unknown`: it had begun when the service died; the harness is told so and does not run it again by itself. */
  status: 'completed' | 'failed' | 'unknown';
}

export interface TurnRequest {
  conversationId: string;
  content: string;
  /** Earlier turns, oldest first; used when the harness has no session for the conversation yet. */
  history: () => Promise<HistoryTurn[]>;
  /** What an interrupted attempt of this very turn left; empty on a first attempt. */
  resume: HistoryTurn[];
  onUpdate: (update: HarnessUpdate) => void;
  /** Answers with the chosen option, or null when cancelled. */
  onPermission: (request: PermissionRequest) => Promise<string | null>;
  /** Resolves when every update so far is durable; rejects when the turn is another owner's by now. */
  onRecord: () => Promise<void>;
  signal: AbortSignal;
}

export type TurnResult =
  | { outcome: 'completed' }
  | { outcome: 'cancelled' }
  | { outcome: 'failed'; code: RunErrorCode; message: string };

/** One harness process, serving all conversations of its sandbox at the same time. */
export interface HarnessConnection {
  /** Runs one turn. Aborting `signal` cancels it inside; it settles as `cancelled` once the harness has stopped. */
  prompt(turn: TurnRequest): Promise<TurnResult>;
  /** The ACP session of a conversation, by which the model gateway attributes calls; null when there is none yet. */
  conversationOfSession(sessionId: string): string | null;
  /** Forget a conversation's session. */
  closeSession(conversationId: string): void;
  close(): void;
}

/** What a sandbox's first process is started from (docs/design/sandbox-launch.md). */
export interface HarnessLaunchInput {
  agentId: string;
  /** Full commit id of the archive at `<runDir>/release.tar`. */
  commit: string;
  /** `<provider>/<model_name>` */
  model: string;
  wire: ModelWire;
  /** Random, per start; only its hash stays on the host. */
  token: string;
  /** `command` of the repository's agent.json; null = the built-in harness. */
  command: string[] | null;
  /** `instructions` of agent.json: a path in the repository; null = AGENTS.md, else CLAUDE.md. */
  instructions: string | null;
  secrets: Record<string, string>;
  /** Names of provider keys, which stay on the host. */
  withheldSecrets: string[];
  memoryBytes: number;
}

export interface HarnessLaunch {
  command: string[];
  env: Record<string, string>;
  binds: ReadOnlyBind[];
}

/** Speaks Agent Client Protocol over the sandbox's stdio. Rejects when the harness does not initialize in time. */
export type ConnectHarness = (
  sandbox: RunningSandbox,
  options: { initializeTimeoutMs: number },
) => Promise<HarnessConnection>;
