import { PassThrough } from 'node:stream';
import type {
  HarnessConnection,
  OpenHarnessLink,
  TurnRequest,
  TurnResult,
} from '../../src/domain/ports/harness.ts';
import type { SandboxProcessExit } from '../../src/domain/ports/sandbox-control.ts';
import type {
  RunningSandbox,
  SandboxDriver,
  SandboxExit,
  SandboxSpec,
} from '../../src/domain/ports/sandbox.ts';

/** What the scripted harness does in a turn. The sandbox is there to be ended. */
export type Script = (turn: TurnRequest, sandbox: FakeSandbox) => Promise<TurnResult>;

/** A sandbox without a process: it runs until it is killed or told to end. */
export class FakeSandbox implements RunningSandbox {
  readonly id: string;
  readonly spec: SandboxSpec;
  readonly stdin = new PassThrough();
  readonly stdout = new PassThrough();
  readonly stderr = new PassThrough();
  readonly logFile = null;
  isFrozen = false;
  readonly exited: Promise<SandboxExit>;
  readonly sessions = new Map<string, string>();
  end!: (exit: SandboxExit) => void;

  constructor(spec: SandboxSpec) {
    this.id = spec.id;
    this.spec = spec;
    this.exited = new Promise((resolve) => (this.end = resolve));
  }

  /** Thrown by commands and connections. */
  channelError: Error | null = null;
  pids = 1;
  /** Whether it takes `stats` to count its processes. */
  isSlowToCount = false;

  async stats() {
    return { cpuMicros: 0, memoryBytes: 0, memoryByteSeconds: 0, pids: this.pids };
  }

  processCount(): number | null {
    return this.isSlowToCount ? null : this.pids;
  }

  async freeze(): Promise<void> {
    this.isFrozen = true;
  }

  async thaw(): Promise<void> {
    this.isFrozen = false;
  }

  stop(): Promise<SandboxExit> {
    return this.kill();
  }

  kill(): Promise<SandboxExit> {
    this.end({ reason: 'killed', code: null, signal: 'SIGKILL' });
    return this.exited;
  }
}

export interface FakeDriver extends SandboxDriver {
  /** All that were started, in order. */
  started: FakeSandbox[];
  live: Map<string, FakeSandbox>;
  removedVolumes: string[];
  /** Thrown by the next starts. */
  failures: Error[];
}

export function fakeDriver(): FakeDriver {
  const driver: FakeDriver = {
    name: 'fake',
    isolation: async () => 'vm',
    close: async () => undefined,
    started: [],
    live: new Map(),
    removedVolumes: [],
    failures: [],
    async capabilities() {
      throw new Error('The fake driver has no capabilities to tell.');
    },
    async start(spec) {
      const failure = driver.failures.shift();
      if (failure) throw failure;
      const sandbox = new FakeSandbox(spec);
      driver.started.push(sandbox);
      driver.live.set(spec.id, sandbox);
      void sandbox.exited.then(() => driver.live.delete(spec.id));
      return sandbox;
    },
    prepare: () => Promise.reject(new Error('The fake driver makes no sandboxes before their agents.')),
    adopt: async (id) => driver.live.get(id) ?? null,
    list: async () => [...driver.live.keys()],
    async remove(id) {
      await driver.live.get(id)?.kill();
    },
    async prepareVolume() {},
    volumeUse: async () => ({ bytes: 0, entries: 0 }),
    async removeVolume(volumeDir) {
      driver.removedVolumes.push(volumeDir);
    },
  };
  return driver;
}

/** Connects to fake sandboxes; a turn is what `script` makes of it, or the end of the sandbox. */
export function fakeLinks(script: Script): OpenHarnessLink {
  const connect = async (running: RunningSandbox, onConnect: (sandbox: FakeSandbox) => void) => {
    const sandbox = running as FakeSandbox;
    onConnect(sandbox);
    const connection: HarnessConnection = {
      async prompt(turn) {
        sandbox.sessions.set(`session of ${turn.conversationId}`, turn.conversationId);
        const exit = sandbox.exited.then((how): TurnResult => {
          if (how.reason === 'oom')
            return { outcome: 'failed', code: 'sandbox_oom', message: 'Out of memory.' };
          return { outcome: 'failed', code: 'harness_exit', message: 'The harness ended.' };
        });
        return Promise.race([script(turn, sandbox), exit]);
      },
      conversationOfSession: (id) => sandbox.sessions.get(id) ?? null,
      closeSession: (conversationId) => void sandbox.sessions.delete(`session of ${conversationId}`),
      close() {},
    };
    return connection;
  };
  return async () => {
    const open = new Set<PassThrough>();
    const commands = new Set<object>();
    const channelEnd = Promise.withResolvers<void>();
    let sandbox: FakeSandbox | null = null;
    return {
      connect: (running) => connect(running, (connected) => (sandbox = connected)),
      adopt: () => Promise.reject(new Error('There is nothing to take up.')),
      control: {
        /** One that runs until it is killed. */
        async exec() {
          if (sandbox?.channelError) throw sandbox.channelError;
          const streams = { stdin: new PassThrough(), stdout: new PassThrough(), stderr: new PassThrough() };
          const { promise: exited, resolve } = Promise.withResolvers<SandboxProcessExit>();
          commands.add(streams);
          // As when its channel ends with the sandbox.
          const endsUntold = () => resolve({ code: null, signal: null });
          void sandbox?.exited.then(endsUntold);
          void channelEnd.promise.then(endsUntold);
          const kill = () => {
            commands.delete(streams);
            resolve({ code: null, signal: 'SIGKILL' });
          };
          return { ...streams, exited, resize: () => undefined, kill };
        },
        async connect() {
          if (sandbox?.channelError) throw sandbox.channelError;
          const connection = new PassThrough();
          open.add(connection);
          connection.once('close', () => open.delete(connection));
          return connection;
        },
      },
      get openCommands() {
        return commands.size;
      },
      get openConnections() {
        return open.size;
      },
      log: { after: () => [], changed: async () => undefined, note: () => undefined, isClosed: false },
      leave: () => channelEnd.resolve(),
    };
  };
}
