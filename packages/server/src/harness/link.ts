import type { InitializeRequest } from '@agentclientprotocol/sdk';
import { readFile } from 'node:fs/promises';
import type { Pace } from '../domain/bucket.ts';
import type { Log } from '../domain/log.ts';
import type { HarnessLink, OpenHarnessLink } from '../domain/ports/harness.ts';
import type { RunningSandbox } from '../domain/ports/sandbox.ts';
import { within } from '../domain/time-limit.ts';
import { AcpHarness } from './acp-harness.ts';
import { openChannel } from './channel.ts';
import type { HarnessCapabilities } from './channel.ts';
import { isRecord } from './clean.ts';
import type { Json } from './clean.ts';
import { Endpoint } from './control/endpoint.ts';
import type { Notes } from './control/endpoint.ts';
import { HarnessError } from './harness-error.ts';
import { RpcFailure } from './rpc-peer.ts';
import { StderrTail } from './stderr-tail.ts';

const initializeParams = {
  protocolVersion: 1,
  clientCapabilities: {
    fs: { readTextFile: false, writeTextFile: false },
    terminal: false,
    elicitation: { form: {} },
    _meta: { 'berth.dev': { record: true } },
  },
  clientInfo: { name: 'berth', title: 'Berth', version: '0.1.0' },
} satisfies InitializeRequest;

/** The note by which a later process of the service knows the harness without asking it. */
const capabilitiesNote = 'harness';

/** The client side of Agent Client Protocol over control channels. What comes from there is hostile until checked. */
export function harnessLinks(options: {
  log: Log;
  workspace?: string;
  unansweredMs?: number;
  pace?: Pace;
}): OpenHarnessLink {
  const { workspace = '/workspace', unansweredMs, pace } = options;
  return async ({ socketPath, sandboxId }) => {
    const log = options.log.child({ sandboxId });
    const onFault = (error: unknown) =>
      log.error('A sandbox sent what could not be handled, and is ended.', {
        error: String(error),
        stack: (error as Error).stack,
      });
    const endpoint = await Endpoint.open(socketPath, {
      onFault,
      ...(unansweredMs !== undefined && { unansweredMs }),
      ...(pace !== undefined && { pace }),
    });
    return new Link(endpoint, workspace, log);
  };
}

class Link implements HarnessLink {
  readonly #endpoint: Endpoint;
  readonly #workspace: string;
  readonly #log: Log;

  constructor(endpoint: Endpoint, workspace: string, log: Log) {
    this.#endpoint = endpoint;
    this.#workspace = workspace;
    this.#log = log;
  }

  get control() {
    return this.#endpoint.commands;
  }

  get openCommands(): number {
    return this.#endpoint.commands.size;
  }

  get openConnections(): number {
    return this.#endpoint.commands.connections;
  }

  get log() {
    return this.#endpoint.log;
  }

  leave(): void {
    this.#endpoint.close();
    // Not sooner: of a channel that has ended it may still be said why.
    this.#endpoint.log.close();
  }

  async connect(sandbox: RunningSandbox, { initializeTimeoutMs }: { initializeTimeoutMs: number }) {
    const hello = Promise.withResolvers<Notes>();
    const { channel } = this.#open(sandbox, hello.resolve);
    const { peer } = channel;
    // The first request of all, whichever process makes it: one that was asked before this one began is not asked again.
    const id = peer.newId();
    const answered = peer.expect(id).then(readCapabilities);
    const noted = hello.promise.then((notes) => {
      const known = readNote(notes);
      this.#endpoint.welcome();
      const isAsked = this.#endpoint.launcherReceived > 0;
      // Nothing else was asked before, says the database; what is inside may say otherwise.
      if (isAsked) peer.skipTo(Date.now());
      else if (!known) peer.ask(id, 'initialize', initializeParams);
      return known ?? answered;
    });
    try {
      const tooLate = `The harness did not answer within ${initializeTimeoutMs / 1000} s.`;
      const known = Promise.race([noted, answered]);
      const capabilities = await within(initializeTimeoutMs, known, noAnswer(tooLate));
      channel.note(capabilitiesNote, capabilities);
      return new AcpHarness(channel, capabilities, this.#workspace);
    } catch (error) {
      channel.fail(error instanceof Error ? error : new Error(String(error)));
      if (error instanceof HarnessError) throw error;
      const why = error instanceof RpcFailure ? error.message.slice(0, 500) : String(error);
      throw new HarnessError('harness_error', `The harness refused to start: ${why}`);
    }
  }

  async adopt(sandbox: RunningSandbox, { timeoutMs }: { timeoutMs: number }) {
    const hello = Promise.withResolvers<Notes>();
    const { channel } = this.#open(sandbox, hello.resolve);
    const gone = sandbox.exited.then(() => {
      throw new HarnessError('harness_exit', 'The sandbox has ended.');
    });
    gone.catch(() => undefined);
    const tooLate = 'Its launcher did not come back.';
    const notes = await within(timeoutMs, Promise.race([hello.promise, gone]), noAnswer(tooLate));
    const capabilities = readNote(notes);
    if (!capabilities) throw new HarnessError('harness_error', 'Its launcher has forgotten its harness.');
    // What was asked before may still be answered; no number is used twice.
    channel.peer.skipTo(Date.now());
    const harness = new AcpHarness(channel, capabilities, this.#workspace);
    return harness.adopted(notes, this.#endpoint.launcherReceived, () => {
      this.#endpoint.welcome();
      channel.note(capabilitiesNote, capabilities);
    });
  }

  #open(sandbox: RunningSandbox, onHello: (notes: Notes) => void) {
    this.#endpoint.commands.sandbox = sandbox;
    const stderr = new StderrTail((note) => this.#log.info('launcher', { note }));
    const lastNotes = async () => {
      if (sandbox.logFile !== null) {
        stderr.push(await readFile(sandbox.logFile).catch(() => Buffer.alloc(0)));
      }
      return stderr.notes();
    };
    const opened = openChannel(this.#endpoint, sandbox, lastNotes, onHello);
    // A detached sandbox has no streams to read; of the others only stderr says something.
    sandbox.stderr.on('data', (chunk: Buffer) => stderr.push(chunk));
    sandbox.stdout.resume();
    for (const stream of [sandbox.stdin, sandbox.stdout, sandbox.stderr]) {
      stream.on('error', () => undefined);
    }
    return opened;
  }
}

const noAnswer = (message: string) => (): never => {
  throw new HarnessError('harness_error', message);
};

function readCapabilities(result: Json): HarnessCapabilities {
  if (result['protocolVersion'] !== 1) {
    throw new HarnessError('harness_error', 'The harness does not speak version 1 of Agent Client Protocol.');
  }
  const capabilities = record(result['agentCapabilities']);
  return {
    history: record(record(capabilities['_meta'])['berth.dev'])['history'] === true,
    close: isRecord(record(capabilities['sessionCapabilities'])['close']),
    prompt: readPromptKinds(capabilities['promptCapabilities']),
  };
}

/** Null: no process of the service has had the answer to its `initialize` yet. */
function readNote(notes: Notes): HarnessCapabilities | null {
  const known = notes.get(capabilitiesNote);
  if (!isRecord(known)) return null;
  const { history, close, prompt } = known;
  return { history: history === true, close: close === true, prompt: readPromptKinds(prompt) };
}

function readPromptKinds(value: unknown): HarnessCapabilities['prompt'] {
  const { image, audio, embeddedContext } = record(value);
  return { image: image === true, audio: audio === true, embeddedContext: embeddedContext === true };
}

function record(value: unknown): Json {
  return isRecord(value) ? value : {};
}
