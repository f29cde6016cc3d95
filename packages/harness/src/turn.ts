import { compact, Window } from './compact.ts';
import { systemText } from './instructions.ts';
import { Model } from './model.ts';
import { ModelError } from './wire.ts';
import { ToolError } from './tool.ts';
import { bashTool } from './tool-bash.ts';
import { editTool, readTool, writeTool } from './tool-files.ts';
import { askTool, publishTool } from './tool-caller.ts';
import { searchTool } from './tool-search.ts';
import type { Caller, Tool, ToolOutcome } from './tool.ts';
import type { ToolCall, ToolResult, Transcript } from './transcript.ts';
import type { Updates } from './updates.ts';
import type { ModelReply } from './wire.ts';

const tools: readonly Tool[] = [bashTool, readTool, writeTool, editTool, searchTool, publishTool, askTool];
const maxModelCalls = 200;
/** Beyond it the model is told to make fewer calls at once. */
const maxParallelCalls = 32;

/** A service that is restarted again and again is not asked for ever. */
const maxCuts = 10;
const goOn =
  'Your answer was cut off by a technical interruption. The user has seen all of it up to there. Go on exactly where it ' +
  'stopped: repeat nothing, do not mention the interruption, and make the tool calls that you were about to make.';

const summarySystem =
  'You write the summary by which a colleague will carry on a conversation between a user and an agent. Keep: what the ' +
  'user wants, decisions, names of files and what was changed in them, results, what is still open. Be brief and exact.';

export type StopReason = 'end_turn' | 'max_tokens' | 'max_turn_requests' | 'refusal' | 'cancelled';

export interface TurnUsage {
  inputTokens: number;
  outputTokens: number;
  modelCalls: number;
}

export interface TurnOptions {
  sessionId: string;
  cwd: string;
  instructions: string | null;
  transcript: Transcript;
  window: Window;
  model: Model;
  updates: Updates;
  /** Resolves when the service has on record what it was told so far; rejects when the turn is not its any more. */
  recorded: () => Promise<unknown>;
  /** Asks the caller; null when there is no answer. */
  ask: Caller['ask'];
  signal: AbortSignal;
  childEnv: () => Promise<Record<string, string>>;
  /** Ids of all calls of the session so far. */
  callIds: Set<string>;
  /** An id that no call of the transcript has. */
  nextId: () => string;
}

/** One turn: the model is called until it asks for no tool any more. Rejects with ModelError. */
export class Turn {
  readonly usage: TurnUsage = { inputTokens: 0, outputTokens: 0, modelCalls: 0 };
  readonly #options: TurnOptions;
  readonly #tools: string;
  #cuts = 0;

  constructor(options: TurnOptions) {
    this.#options = options;
    this.#tools = encodedTools(options.model);
  }

  async run(): Promise<StopReason> {
    const { transcript, signal, cwd, instructions } = this.#options;
    const system = systemText(cwd, instructions);
    for (let step = 0; step < maxModelCalls; step++) {
      let reply: ModelReply;
      try {
        reply = await this.#answer(system);
      } catch (error) {
        if (signal.aborted) return 'cancelled';
        throw error;
      }
      for (const call of reply.calls) this.#makeUnique(call);
      transcript.push({ role: 'assistant', text: reply.text, thinking: reply.thinking, calls: reply.calls });
      if (reply.calls.length === 0) return stopReason(reply);
      const results = await Promise.all(reply.calls.map((call, index) => this.#runTool(call, index)));
      // Also after a cancel: a call without a result would make the transcript unusable.
      transcript.push({ role: 'tools', results });
      if (signal.aborted) return 'cancelled';
    }
    return 'max_turn_requests';
  }

  async #answer(system: string): Promise<ModelReply> {
    const { transcript, window } = this.#options;
    for (let attempt = 0; ; attempt++) {
      if (window.isNearlyFull(transcript.chars + system.length)) await this.#compact();
      try {
        return await this.#callModel(system);
      } catch (error) {
        if (error instanceof ModelError && error.isCut && this.#cuts++ < maxCuts) {
          transcript.push({ role: 'user', text: goOn });
          continue;
        }
        if (!(error instanceof ModelError) || error.code !== 'context_full') throw error;
        const before = transcript.chars;
        window.refused(before + system.length);
        await this.#compact();
        if (attempt >= 3 || transcript.chars >= before) {
          throw new ModelError('model_error', `The conversation is too long for the model: ${error.message}`);
        }
      }
    }
  }

  async #callModel(system: string): Promise<ModelReply> {
    const { transcript, window, model, updates, signal, sessionId } = this.#options;
    let shown = '';
    const sink = {
      text: (delta: string) => {
        shown += delta;
        updates.text(delta);
      },
      thought: (delta: string) => updates.thought(delta),
    };
    try {
      const reply = await model.call({
        system,
        tools: this.#tools,
        encoded: transcript.encoded,
        sessionId,
        signal,
        sink,
      });
      this.#count(reply);
      window.learn(transcript.chars + system.length, reply.usage.inputTokens);
      return reply;
    } catch (error) {
      // What the user has seen stays part of the conversation.
      if (shown !== '') transcript.push({ role: 'assistant', text: shown, thinking: [], calls: [] });
      throw error;
    }
  }

  async #compact(): Promise<void> {
    const { transcript, window, model, signal, sessionId } = this.#options;
    await compact(transcript, window, async (text) => {
      const encoded = [model.wire.encode({ role: 'user', text })];
      const sink = { text: () => undefined, thought: () => undefined };
      try {
        const reply = await model.call({
          system: summarySystem,
          tools: '',
          encoded,
          sessionId,
          signal,
          sink,
        });
        this.#count(reply);
        return reply.text.trim() || null;
      } catch (error) {
        if (signal.aborted || !(error instanceof ModelError) || error.code === 'budget_exceeded') throw error;
        return null;
      }
    });
  }

  async #runTool(call: ToolCall, index: number): Promise<ToolResult> {
    const { updates } = this.#options;
    const tool = tools.find((candidate) => candidate.definition.name === call.name);
    updates.toolStarted(call, tool);
    const { text, isError } = await this.#outcome(call, tool, index);
    updates.toolFinished(call, text, isError);
    return { id: call.id, name: call.name, text, isError };
  }

  async #outcome(call: ToolCall, tool: Tool | undefined, index: number): Promise<ToolOutcome> {
    const { cwd, signal, childEnv, updates, sessionId } = this.#options;
    if (signal.aborted) return failed('[cancelled]');
    if (!tool) return failed(`There is no tool "${call.name}".`);
    if (index >= maxParallelCalls)
      return failed(`At most ${maxParallelCalls} calls at once; this one was not run.`);
    if (call.badArguments !== undefined) {
      return failed(
        `The arguments were no whole JSON object, so nothing was run. They began: ${call.badArguments.slice(0, 200)}`,
      );
    }
    if (tool.kind === 'execute' || tool.kind === 'edit') {
      // Only what is known to have begun may happen: else a crash in between would let it happen twice.
      const isRecorded = await this.#options.recorded().then(
        () => true,
        () => false,
      );
      if (!isRecorded || signal.aborted) return failed('[cancelled]');
    }
    try {
      return await tool.run(call.input, {
        cwd,
        signal,
        mark: `${sessionId}.${call.id}`,
        childEnv,
        onProgress: (text) => updates.toolProgress(call, text),
        caller: { artifact: (content, about) => updates.artifact(content, about), ask: this.#options.ask },
      });
    } catch (error) {
      if (error instanceof ToolError) return failed(error.message);
      return failed(`The tool failed: ${error instanceof Error ? error.message : String(error)}`);
    }
  }

  /** Some servers give every call the same id, or none, or one that the other wire would refuse. */
  #makeUnique(call: ToolCall): void {
    const { callIds, nextId } = this.#options;
    if (!/^[\w-]{1,64}$/.test(call.id) || callIds.has(call.id)) call.id = nextId();
    callIds.add(call.id);
  }

  #count(reply: ModelReply): void {
    this.usage.inputTokens += reply.usage.inputTokens;
    this.usage.outputTokens += reply.usage.outputTokens;
    this.usage.modelCalls += 1;
  }
}

function failed(text: string): ToolOutcome {
  return { text, isError: true };
}

function stopReason(reply: ModelReply): StopReason {
  if (reply.stop === 'length') return 'max_tokens';
  return reply.stop === 'refusal' ? 'refusal' : 'end_turn';
}

const encodings = new WeakMap<object, string>();

function encodedTools(model: Model): string {
  let encoded = encodings.get(model.wire);
  if (encoded === undefined) {
    encoded = model.wire.encodeTools(tools.map((tool) => tool.definition));
    encodings.set(model.wire, encoded);
  }
  return encoded;
}
