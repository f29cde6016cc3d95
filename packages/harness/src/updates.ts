import type { Tool } from './tool.ts';
import type { ReplySink } from './wire.ts';
import type { ToolCall } from './transcript.ts';

/** Agent Client Protocol's `session/update` notifications of one turn, written as text: they are the hot path. */
export class Updates implements ReplySink {
  readonly #write: (line: string) => void;
  readonly #prefix: string;
  #open = true;

  constructor(sessionId: string, write: (line: string) => void) {
    this.#write = write;
    const session = JSON.stringify(sessionId);
    this.#prefix = `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":${session},"update":`;
  }

  text(delta: string): void {
    this.#send(
      `{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":${JSON.stringify(delta)}}}`,
    );
  }

  thought(delta: string): void {
    this.#send(
      `{"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":${JSON.stringify(delta)}}}`,
    );
  }

  toolStarted(call: ToolCall, tool: Tool | undefined): void {
    this.#object({
      sessionUpdate: 'tool_call',
      toolCallId: call.id,
      title: tool?.title(call.input) || call.name,
      kind: tool?.kind ?? 'other',
      status: 'in_progress',
      rawInput: call.input,
    });
  }

  toolProgress(call: ToolCall, text: string): void {
    this.#object({ sessionUpdate: 'tool_call_update', toolCallId: call.id, content: content(text) });
  }

  toolFinished(call: ToolCall, text: string, isError: boolean): void {
    const status = isError ? 'failed' : 'completed';
    this.#object({ sessionUpdate: 'tool_call_update', toolCallId: call.id, status, content: content(text) });
  }

  /** Content that is a result of its own. */
  artifact(of: object, about: { id: string; name: string }): void {
    this.#object({
      sessionUpdate: 'agent_message_chunk',
      content: of,
      _meta: { 'berth.dev': { artifact: about } },
    });
  }

  /** Nothing may follow the answer to the prompt. */
  close(): void {
    this.#open = false;
  }

  #object(update: object): void {
    this.#send(JSON.stringify(update));
  }

  #send(update: string): void {
    if (this.#open) this.#write(`${this.#prefix}${update}}}\n`);
  }
}

function content(text: string): object[] {
  return [{ type: 'content', content: { type: 'text', text } }];
}
