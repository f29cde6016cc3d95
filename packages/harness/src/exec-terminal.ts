import { accessSync, closeSync, constants, openSync } from 'node:fs';
import { isAbsolute, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { groupOf, StartError } from './exec-start.ts';
import type { ExecRequest, Exit, Started } from './exec-start.ts';
import { markVariable } from './processes.ts';

const tty = process.getBuiltinModule('node:tty');

/** The addon of node-pty (its own wrapper does more than we need). */
interface Pty {
  fork(
    file: string,
    args: string[],
    env: string[],
    cwd: string,
    columns: number,
    rows: number,
    uid: number,
    gid: number,
    isUtf8: boolean,
    helper: string,
    onExit: (code: number, signal: number) => void,
  ): { fd: number; pid: number; pty: string };
  resize(fd: number, columns: number, rows: number): void;
}

type Request = ExecRequest & { cwd: string; terminal: { columns: number; rows: number } };

const endOfTransmission = '\x04';
let addon: Pty | null = null;

/** Starts a command as the leader of a session whose controlling terminal is a new pseudo-terminal. */
export function startInTerminal(request: Request): Started {
  const [program = '', ...args] = request.command;
  const env: Record<string, string> = { TERM: 'xterm-256color', ...request.env };
  const file = findProgram(program, env['PATH'] ?? '', request.cwd);
  const pty = loadAddon();
  const { columns, rows } = request.terminal;
  const exit = Promise.withResolvers<Exit>();
  const entries = Object.entries(env).map(([name, value]) => `${name}=${value}`);
  const {
    fd,
    pid,
    pty: name,
  } = pty.fork(file, args, entries, request.cwd, columns, rows, -1, -1, true, '', (code, number) =>
    exit.resolve(number === 0 ? { code, signal: null } : { code: null, signal: signalName(number) }),
  );
  // A program that closes its outputs just before it exits would else be ended by the hang-up of its terminal.
  const held = openSync(name, constants.O_RDWR | constants.O_NOCTTY);
  void exit.promise.then(() => closeSync(held));
  // Both directions; a read from a terminal that nobody holds any more ends with EIO.
  const stream = new tty.ReadStream(fd);
  let isOpen = true;
  stream.on('close', () => (isOpen = false));
  return {
    input: stream,
    outputs: [stream],
    exited: exit.promise,
    endInput: () => isOpen && stream.write(endOfTransmission),
    ...groupOf(pid, env[markVariable]!, exit.promise),
    resize(columns, rows) {
      if (isOpen) pty.resize(fd, columns, rows);
    },
  };
}

function loadAddon(): Pty {
  if (addon) return addon;
  const module = { exports: {} };
  try {
    process.dlopen(module, fileURLToPath(new URL('./pty.node', import.meta.url)));
  } catch (error) {
    throw new StartError('failed', `This sandbox has no terminals (${(error as Error).message}).`);
  }
  addon = module.exports as Pty;
  return addon;
}

/** The addon only says by its exit code that it found no program. */
function findProgram(program: string, path: string, cwd: string): string {
  const places = program.includes('/') ? [cwd] : path.split(':');
  for (const place of places) {
    const file = isAbsolute(program) ? program : join(place, program);
    try {
      accessSync(file, constants.X_OK);
      return file;
    } catch {
      // The next one.
    }
  }
  throw new StartError('not_found', `There is no program "${program}".`);
}

function signalName(number: number): string {
  const { signals } = process.getBuiltinModule('node:os').constants;
  return Object.entries(signals).find(([, value]) => value === number)?.[0] ?? `SIG${number}`;
}
