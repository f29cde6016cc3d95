import { ConfigError } from '../config-values.ts';
import { readConfig } from '../config.ts';
import { isDatabaseAway } from '../domain/database-away.ts';

/** A message for the operator: one line, no stack. */
export class CommandError extends Error {}

const usage = `Usage: berth-server [command]
  (none)                   run the service
  doctor [--json]          say what this machine offers and lacks
  backup <folder>          write the database and the repositories to a folder
  restore <folder>         read a backup into an empty installation
  host keys create [name]  make an edit key for the whole organisation
  rotate-encryption-key    replace the key under which secrets are kept
`;

/** Runs one command of the host; resolves with its exit code. */
export async function run(argv: string[], env: NodeJS.ProcessEnv): Promise<number> {
  try {
    const config = readConfig(env);
    const [first, second, third] = argv;
    if (first === undefined) {
      const { serve } = await import('./serve.ts');
      return await serve(config, env);
    }
    if (first === 'doctor') {
      const { doctor } = await import('./doctor.ts');
      return await doctor(config, env, argv.includes('--json'));
    }
    if (first === 'backup' || first === 'restore') {
      const { backupCommand, restoreCommand } = await import('./backup-command.ts');
      return await (first === 'backup' ? backupCommand : restoreCommand)(config, argv.slice(1));
    }
    if (first === 'host' && second === 'keys' && third === 'create') {
      const { createKeyCommand } = await import('./key-commands.ts');
      return await createKeyCommand(config, argv[3] ?? 'made on the host');
    }
    if (first === 'rotate-encryption-key') {
      const { rotateCommand } = await import('./key-commands.ts');
      return await rotateCommand(config);
    }
    process.stderr.write(usage);
    return first === 'help' || first === '--help' ? 0 : 1;
  } catch (error) {
    process.stderr.write(`berth: ${explain(error)}\n`);
    return 1;
  }
}

/** Errors that are made for the operator say all in their message; of the others the stack is needed. */
function explain(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const made = new Set([
    'ConfigError',
    'CommandError',
    'DataDirError',
    'DriverError',
    'EmbeddedError',
    'SchemaError',
    'KeyFileError',
    'ProviderConfigError',
    'DomainError',
    'EncryptionKeyError',
    'BackupError',
    'InstallationError',
    'UnreachableError',
  ]);
  const isMade =
    error instanceof ConfigError || error instanceof CommandError || made.has(error.constructor.name);
  if (isMade) return error.message;
  const code = (error as NodeJS.ErrnoException).code;
  if (code === 'EADDRINUSE')
    return `${error.message}; another program uses the port: set BERTH_PORT to another one.`;
  if (isDatabaseAway(error)) return `The database cannot be reached: ${error.message || code}.`;
  if (isOfFiles(error)) return error.message;
  return error.stack ?? error.message;
}

/** A folder that is closed, a disk that is full: the message says which path, and no line of ours is to blame. */
function isOfFiles({ code, path }: NodeJS.ErrnoException): boolean {
  const codes = [
    'EACCES',
    'EPERM',
    'EROFS',
    'ENOENT',
    'ENOTDIR',
    'EISDIR',
    'ENOSPC',
    'EDQUOT',
    'ENAMETOOLONG',
  ];
  return path !== undefined && codes.includes(code ?? '');
}
