/**
 * `agent.json` at the root of a repository: how its agent is started. Every field is optional; docs/agent.schema.json
 * describes the same, and a test keeps the two in step.
 */
export interface Manifest {
  /** argv of an ACP agent on stdio, started in the unpacked repository; null = the built-in harness. */
  command: string[] | null;
  /** `auto` lets the harness's tools run; `ask` puts each request for permission to the caller. */
  permissions: 'auto' | 'ask';
  /** A file of the repository with the agent's instructions; null = AGENTS.md, else CLAUDE.md. */
  instructions: string | null;
  /** What the agent asks for; the installation's own limits stay the ceiling. */
  limits: ManifestLimits;
  /** The web server that the agent runs behind its own address (docs/agent-web.md); null = none. Old rows lack it. */
  web?: ManifestWeb | null;
}

export interface ManifestWeb {
  /** On loopback, inside the sandbox. */
  port: number;
  /** Whether anybody may ask it; else a key with access to the agent is needed. */
  public: boolean;
  /** argv that starts it when it is first asked for; null = the agent starts it by itself. */
  command: string[] | null;
}

export interface ManifestLimits {
  memoryMb?: number;
  cpus?: number;
  pids?: number;
  diskMb?: number;
  idleSeconds?: number;
}

export type ManifestResult =
  | { ok: true; manifest: Manifest; notes: string[] }
  /** One sentence: the field, what is wrong, what to do. */
  | { ok: false; error: string };

export const defaultManifest: Manifest = {
  command: null,
  permissions: 'auto',
  instructions: null,
  limits: {},
  web: null,
};

/** Bounds of `limits`; the same as those of the service's own settings. */
export const manifestLimitBounds: Record<keyof ManifestLimits, { min: number; max: number; whole: boolean }> =
  {
    memoryMb: { min: 64, max: 1_048_576, whole: true },
    cpus: { min: 0.1, max: 256, whole: false },
    pids: { min: 32, max: 32_768, whole: true },
    diskMb: { min: 16, max: 1_048_576, whole: true },
    idleSeconds: { min: 1, max: 86_400, whole: true },
  };

export const manifestFields = [
  '$schema',
  'harness',
  'command',
  'protocol',
  'permissions',
  'instructions',
  'web',
  'limits',
];
export const manifestWebFields = ['port', 'public', 'command'];
const MAX_ARGUMENTS = 64;
const MAX_ARGUMENT_CHARS = 4096;
const MAX_PATH_CHARS = 255;

class Refusal extends Error {}

/** Reads the text of an agent.json; null = there is none. What it does not know is named in `notes` and ignored. */
export function readManifest(text: string | null): ManifestResult {
  if (text === null) return { ok: true, manifest: defaultManifest, notes: [] };
  try {
    const fields = parseObject(text);
    checkHarness(fields);
    const manifest = {
      command: readCommand(fields.command),
      permissions: readPermissions(fields.permissions),
      instructions: readPath(fields.instructions),
      limits: readLimits(fields.limits),
      web: readWeb(fields.web),
    };
    return { ok: true, manifest, notes: unknownFields(fields) };
  } catch (error) {
    if (error instanceof Refusal) return { ok: false, error: `agent.json: ${error.message}` };
    throw error;
  }
}

type Fields = Record<string, unknown>;

function isObject(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function parseObject(text: string): Fields {
  let value: unknown;
  try {
    value = JSON.parse(text.replace(/^\ufeff/, ''));
  } catch {
    // The parser's own message quotes the text, which may hold what nobody meant to print.
    throw new Refusal('it is not valid JSON; check it with a JSON validator (comments are not allowed).');
  }
  if (!isObject(value)) throw new Refusal('it must be a JSON object, such as {"permissions": "auto"}.');
  return value;
}

function checkHarness({ harness, protocol, command }: Fields): void {
  if (harness !== undefined && harness !== 'builtin') {
    throw new Refusal(
      'harness: only "builtin" is available here; leave it out, or give the agent\'s own "command".',
    );
  }
  if (harness !== undefined && command !== undefined) {
    throw new Refusal('harness: leave it out when "command" is given; an agent has one or the other.');
  }
  if (protocol !== undefined && protocol !== 'acp') {
    throw new Refusal('protocol: only "acp" (Agent Client Protocol on stdin and stdout) is supported.');
  }
}

function readCommand(value: unknown, field = 'command'): string[] | null {
  if (value === undefined) return null;
  const words = Array.isArray(value) ? (value as unknown[]) : [];
  const usable = words.every(
    (word): word is string =>
      typeof word === 'string' &&
      word.length <= MAX_ARGUMENT_CHARS &&
      !word.includes('\0') &&
      word.isWellFormed(),
  );
  if (!usable || words.length === 0 || words.length > MAX_ARGUMENTS || words[0] === '') {
    throw new Refusal(
      `${field}: must be an array of 1 to ${MAX_ARGUMENTS} strings, the program first, such as ["node", "agent.mjs"].`,
    );
  }
  return words as string[];
}

function readPermissions(value: unknown): Manifest['permissions'] {
  if (value === undefined) return 'auto';
  if (value === 'auto' || value === 'ask') return value;
  throw new Refusal('permissions: must be "auto" or "ask".');
}

function readPath(value: unknown): string | null {
  if (value === undefined) return null;
  const usable =
    typeof value === 'string' &&
    value.length <= MAX_PATH_CHARS &&
    // Printable, relative, forward slashes, and no step that is empty, "." or "..".
    /^[^\\:\p{C}]+$/u.test(value) &&
    value.split('/').every((step) => step !== '' && step !== '.' && step !== '..');
  if (!usable) {
    throw new Refusal('instructions: must be the path of a file in the repository, such as "docs/AGENT.md".');
  }
  return value;
}

function readLimits(value: unknown): ManifestLimits {
  if (value === undefined) return {};
  if (!isObject(value)) throw new Refusal('limits: must be an object, such as {"memoryMb": 512}.');
  const limits: ManifestLimits = {};
  for (const [name, { min, max, whole }] of Object.entries(manifestLimitBounds)) {
    const asked = value[name];
    if (asked === undefined) continue;
    const usable =
      typeof asked === 'number' && asked >= min && asked <= max && (!whole || Number.isInteger(asked));
    if (!usable)
      throw new Refusal(`limits.${name}: must be a ${whole ? 'whole ' : ''}number from ${min} to ${max}.`);
    limits[name as keyof ManifestLimits] = asked;
  }
  return limits;
}

function readWeb(value: unknown): ManifestWeb | null {
  if (value === undefined) return null;
  if (!isObject(value)) throw new Refusal('web: must be an object, such as {"port": 8080}.');
  const { port, public: isPublic = false, command } = value;
  if (typeof port !== 'number' || !Number.isInteger(port) || port < 1 || port > 65_535)
    throw new Refusal('web.port: must be a whole number from 1 to 65535.');
  if (typeof isPublic !== 'boolean') throw new Refusal('web.public: must be true or false.');
  return { port, public: isPublic, command: readCommand(command, 'web.command') };
}

function unknownFields(fields: Fields): string[] {
  const unknown = Object.keys(fields).filter((name) => !manifestFields.includes(name));
  const inLimits = isObject(fields.limits)
    ? Object.keys(fields.limits).filter((name) => !Object.hasOwn(manifestLimitBounds, name))
    : [];
  const inWeb = isObject(fields.web)
    ? Object.keys(fields.web).filter((name) => !manifestWebFields.includes(name))
    : [];
  return [...unknown, ...inLimits.map((name) => `limits.${name}`), ...inWeb.map((name) => `web.${name}`)]
    .slice(0, 20)
    .map(
      (name) => `agent.json: the field ${JSON.stringify(name.slice(0, 60))} is not known and was ignored.`,
    );
}
