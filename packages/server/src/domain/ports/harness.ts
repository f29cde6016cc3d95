import type { PlanEntry } from '../events.ts';
import type { RunErrorCode } from '../errors.ts';
import type { MessageExtras, Part } from '../parts.ts';
import type { Answer, Question } from '../questions.ts';
import type { ModelWire } from './model-gateway.ts';
import type { ReadOnlyBind, RunningSandbox } from './sandbox.ts';
import type { SandboxControl } from './sandbox-control.ts';

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
  | { kind: 'plan'; entries: PlanEntry[] }
  | {
      kind: 'artifact';
      artifactId: string;
      name: string | null;
      description: string | null;
      append: boolean;
      lastChunk: boolean;
      parts: Part[];
    };

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
  runId: string;
  attempt: number;
  conversationId: string;
  content: string;
  /** The surface by which the message came. */
  source: string;
  /** What came with the message beside its text; null = nothing. */
  extras: MessageExtras | null;
  /** Earlier turns, oldest first; used when the harness has no session for the conversation yet. */
  history: () => Promise<HistoryTurn[]>;
  /** What an interrupted attempt of this very turn left; empty on a first attempt. */
  resume: HistoryTurn[];
  onUpdate: (update: HarnessUpdate) => void;
  /**
   * Everything that the harness has told before this position of its output was handed to `onUpdate` and `onQuestion`.
   * Stored together with it, it is where another process of the service goes on (`ResumedTurn.told`).
   */
  onTold: (position: number) => void;
  /** Its `requestId` is new, and unique. `recorded` is called when the question is on its way to the log. */
  onQuestion: (question: Question, recorded: () => void) => Promise<Answer>;
  /** Resolves when every update so far is durable; rejects when the turn is another owner's by now. */
  onRecord: () => Promise<void>;
  /** The same, asked now and then by whoever acknowledges what the harness has told. */
  onAcknowledge: () => Promise<void>;
  /** Resolves when the end of this attempt is durable, or nobody will make it so. */
  ended: Promise<void>;
  signal: AbortSignal;
}

/** A turn that an earlier process of the service began, and that its harness goes on with. */
export interface ResumedTurn extends Omit<
  TurnRequest,
  'content' | 'source' | 'extras' | 'history' | 'resume'
> {
  /** The last position that was stored: what came before it is on record, and is not told again. */
  told: number;
  /** The tool calls of this attempt that are on record, each as it was told last. */
  tools: Extract<HarnessUpdate, { kind: 'tool' }>[];
  /** An earlier process had put this question: answers as `onQuestion` does. Null: there is no such question. */
  onAskedBefore: (requestId: string) => Promise<Answer> | null;
}

/** What the launcher kept of a turn. It comes from inside the sandbox. */
export interface UnfinishedTurn {
  conversationId: string;
  runId: string;
  attempt: number;
  /** Questions that the harness waits for. */
  requestIds: string[];
}

export type TurnResult =
  /** `reply`: the harness calls its answer a plain message; else it is the result of a task. */
  | { outcome: 'completed'; reply?: 'message' }
  /** The agent does not do what it was asked to, and has said why. */
  | { outcome: 'refused' }
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
  /** Asks the harness to end by itself, and ends the channel. */
  close(): void;
}

/** A harness that an earlier process of the service started. */
export interface AdoptedHarness {
  connection: HarnessConnection;
  unfinished: UnfinishedTurn[];
  /** Goes on with one of them; before `begin`. */
  resume(turn: ResumedTurn): Promise<TurnResult>;
  /**
   * The harness tells what nobody has acknowledged. Sessions whose turn was not resumed are closed; where the harness closes
   * none, the turns of the conversations that are `underWay` are cancelled in it.
   */
  begin(underWay: ReadonlySet<string>): void;
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
  /** That its model gateway takes at once. */
  modelConnections: number;
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

export interface SandboxLogLines {
  /** The kept lines after a number, oldest first; numbers count from 1. */
  after(number: number): { number: number; at: Date; text: string }[];
  /** Resolves when there may be more, or never will be. */
  changed(signal: AbortSignal): Promise<void>;
  /** A line of the service's own, which is always kept, also after the end. */
  note(text: string): void;
  readonly isClosed: boolean;
}

/** The host's end of one sandbox's control channel (docs/design/control-channel.md). */
export interface HarnessLink {
  /**
   * Waits for the launcher and begins, or goes on with what an earlier process of the service had begun and not come to
   * the end of. Rejects when the harness does not initialize in time.
   */
  connect(sandbox: RunningSandbox, options: { initializeTimeoutMs: number }): Promise<HarnessConnection>;
  /** Of a sandbox whose harness an earlier process initialized. Rejects when its launcher does not come back in time. */
  adopt(sandbox: RunningSandbox, options: { timeoutMs: number }): Promise<AdoptedHarness>;
  readonly control: SandboxControl;
  /** Commands that run now. */
  readonly openCommands: number;
  /** Connections to servers inside that are open now. */
  readonly openConnections: number;
  readonly log: SandboxLogLines;
  /** Leaves the sandbox as it is: its harness goes on, and waits for the next process of the service. */
  leave(): void;
}

/** Listens before the sandbox is started. Rejects when it cannot. */
export type OpenHarnessLink = (place: { socketPath: string; sandboxId: string }) => Promise<HarnessLink>;
