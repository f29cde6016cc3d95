import type { Config } from '../config.ts';
import { createStores, openEncryptionKeys } from '../stores.ts';
import { createHostKey } from '../services/bootstrap.ts';
import { withInstallation } from './installation.ts';

/** Whoever can open the database may make a key: an edit key for the whole organisation. Prints its value once. */
export function createKeyCommand(config: Config, name: string): Promise<number> {
  return withInstallation(config, 'current', async (db) => {
    const input = { name, scope: 'edit', binding: 'org-bound', agentId: null } as const;
    const { value, key } = await createHostKey(createStores(db), input);
    process.stderr.write(`edit key ${key.id} for the whole organisation; its value is shown this once:\n`);
    process.stdout.write(`${value}\n`);
    return 0;
  });
}

/** A new key-encryption key; the service may run meanwhile. May be killed and run again. */
export function rotateCommand(config: Config): Promise<number> {
  return withInstallation(config, 'current', async (db) => {
    const keys = openEncryptionKeys(config, db, createStores(db));
    const { kekId, rewrapped, oldKeysRemoved } = await keys.rotate();
    process.stderr.write(
      `The encryption key is now ${kekId}; ${rewrapped} values were wrapped anew. ` +
        (oldKeysRemoved
          ? 'The old keys are removed; replace your back-up of the key file.\n'
          : 'Remove the old key yourself once no service uses it.\n'),
    );
    return 0;
  });
}
