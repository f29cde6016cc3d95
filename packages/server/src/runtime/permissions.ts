import { cleanText } from '../domain/clean-text.ts';
import type { PermissionOption } from '../domain/events.ts';
import type { PermissionRequest } from '../domain/ports/harness.ts';
import type { RunLife, RunWriter } from '../services/run-life.ts';

interface Open {
  toolCallId: string;
  resolve(optionId: string | null): void;
}

/** The requests for permission of one run: answered by policy, or put to the caller. */
export class Permissions {
  readonly #life: RunLife;
  readonly #writer: RunWriter;
  readonly #policy: 'auto' | 'ask';
  readonly #open = new Map<string, Open>();
  #isClosed = false;

  constructor(life: RunLife, writer: RunWriter, policy: 'auto' | 'ask') {
    this.#life = life;
    this.#writer = writer;
    this.#policy = policy;
  }

  get isWaiting(): boolean {
    return this.#open.size > 0;
  }

  /** Resolves with the chosen option, or null when cancelled. `recorded` is called when the question is on its way to the log. */
  async ask(request: PermissionRequest, recorded: () => void): Promise<string | null> {
    try {
      return await this.#ask(request, recorded);
    } finally {
      recorded();
    }
  }

  /** An earlier process of the service had put this question to the caller. */
  askedBefore(requestId: string, toolCallId: string): Promise<string | null> {
    return new Promise((resolve) => this.#open.set(requestId, { toolCallId, resolve }));
  }

  async #ask(request: PermissionRequest, recorded: () => void): Promise<string | null> {
    if (this.#isClosed) return null;
    const { runId } = this.#writer.claim;
    const { requestId } = request;
    const toolCallId = cleanText(request.toolCallId);
    const options = request.options.map(({ optionId, name, kind }) => ({
      optionId,
      name: cleanText(name),
      kind,
    }));
    const data = { runId, requestId, toolCallId, title: cleanText(request.title), options };
    if (this.#policy === 'auto') {
      const optionId = allowed(request.options);
      this.#writer.append(
        { type: 'permission.requested', data },
        { type: 'permission.resolved', data: { runId, requestId, toolCallId, optionId, by: 'policy' } },
      );
      return optionId;
    }
    await this.#life.askPermission({ runId, requestId, toolCallId, options });
    if (this.#isClosed) return null;
    return new Promise((resolve) => {
      this.#open.set(requestId, { toolCallId, resolve });
      this.#writer.change(
        'awaiting_input',
        { type: 'permission.requested', data },
        { type: 'run.awaiting_input', data: { runId, requestId } },
      );
      recorded();
    });
  }

  /** A caller has answered; the events are written already. */
  answer(requestId: string, optionId: string): void {
    const open = this.#open.get(requestId);
    this.#open.delete(requestId);
    open?.resolve(optionId);
  }

  /** The turn is over or being stopped: nobody will answer any more. */
  async close(): Promise<void> {
    this.#isClosed = true;
    const { runId } = this.#writer.claim;
    for (const [requestId, { toolCallId, resolve }] of this.#open) {
      this.#open.delete(requestId);
      await this.#life.cancelPermission(runId, requestId).catch(() => undefined);
      this.#writer.append({
        type: 'permission.resolved',
        data: { runId, requestId, toolCallId, optionId: null, by: 'cancel' },
      });
      resolve(null);
    }
  }
}

/** The least that lets the tool run. Null when the harness offers nothing of the kind. */
function allowed(options: PermissionOption[]): string | null {
  const byKind = (kind: string) => options.find((option) => option.kind === kind)?.optionId;
  return byKind('allow_once') ?? byKind('allow_always') ?? null;
}
