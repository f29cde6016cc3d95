/** What the host tells by environment variables (docs/design/sandbox-launch.md). */
export interface Settings {
  commit: string;
  /** `<provider>/<model_name>` */
  provider: string;
  model: string;
  wire: 'anthropic' | 'openai-chat';
  token: string;
  /** That the model gateway takes at once. */
  modelConnections: number;
  /** argv of another agent; null = the built-in one. */
  command: string[] | null;
  /** The file of the workspace that holds the instructions; null = the usual names. */
  instructions: string | null;
}

/** The places of the launch contract; tests without a sandbox use others. */
export interface Paths {
  workspace: string;
  home: string;
  archive: string;
  gatewaySocket: string;
  controlSocket: string;
}

export const sandboxPaths: Paths = {
  workspace: '/workspace',
  home: '/home/agent',
  archive: '/run/berth/release.tar',
  gatewaySocket: '/run/berth/gateway.sock',
  controlSocket: '/run/berth/control.sock',
};

/**
 * Where the places lie: below nothing in a sandbox, and below a folder of links for a plain process, which sees the root of
 * the host (`BERTH_SANDBOX=process`).
 */
export const sandboxRoot = (env: NodeJS.ProcessEnv): string => env['BERTH_SANDBOX_ROOT'] ?? '';

export function pathsBelow(root: string): Paths {
  const below = (path: string): string => `${root}${path}`;
  return {
    workspace: below(sandboxPaths.workspace),
    home: below(sandboxPaths.home),
    archive: below(sandboxPaths.archive),
    gatewaySocket: below(sandboxPaths.gatewaySocket),
    controlSocket: below(sandboxPaths.controlSocket),
  };
}

/** Ends the launcher with a code of the contract and one line on stderr. */
export class LaunchError extends Error {
  readonly exitCode: number;

  constructor(exitCode: number, message: string) {
    super(message);
    this.exitCode = exitCode;
  }
}

export function readSettings(env: NodeJS.ProcessEnv): Settings {
  const commit = required(env, 'BERTH_COMMIT', /^[0-9a-f]{40,64}$/, 'a full commit id');
  const fullModel = required(env, 'BERTH_MODEL', /^[^/\s]+\/\S+$/, '<provider>/<model_name>');
  const wire = required(env, 'BERTH_MODEL_WIRE', /^(anthropic|openai-chat)$/, 'anthropic or openai-chat');
  const token = required(env, 'BERTH_MODEL_TOKEN', /^[\x21-\x7e]+$/, "the sandbox's token");
  const connections = required(env, 'BERTH_MODEL_CONNECTIONS', /^[1-9]\d{0,5}$/, 'a number of connections');
  const slash = fullModel.indexOf('/');
  return {
    commit,
    provider: fullModel.slice(0, slash),
    model: fullModel.slice(slash + 1),
    wire: wire as Settings['wire'],
    token,
    modelConnections: Number(connections),
    command: readCommand(env['BERTH_HARNESS_COMMAND']),
    instructions: env['BERTH_INSTRUCTIONS'] || null,
  };
}

function required(env: NodeJS.ProcessEnv, name: string, pattern: RegExp, meaning: string): string {
  const value = env[name] ?? '';
  // The value is not shown, since one of them is a token.
  if (!pattern.test(value)) throw new LaunchError(78, `${name} must be ${meaning}.`);
  return value;
}

function readCommand(text: string | undefined): string[] | null {
  if (text === undefined) return null;
  try {
    const argv: unknown = JSON.parse(text);
    if (
      Array.isArray(argv) &&
      argv.length > 0 &&
      argv.every((part) => typeof part === 'string') &&
      argv[0] !== ''
    ) {
      return argv;
    }
  } catch {
    // Falls through to the one message for every wrong shape.
  }
  throw new LaunchError(78, 'BERTH_HARNESS_COMMAND must be a JSON array of texts, the program first.');
}
