import { randomBytes } from 'node:crypto';
import { createBox, idOfKey } from '../domain/box.ts';
import type { Box } from '../domain/box.ts';
import { DomainError } from '../domain/errors.ts';
import type { KeySource } from '../domain/ports/key-source.ts';
import {
  brokerContext,
  channelContext,
  webhookSecretContext,
  idempotencyContext,
  pushConfigContext,
  secretContext,
  signingKeyContext,
} from '../domain/seal-context.ts';
import type { Database } from '../store/database.ts';
import type { SealedRowStore, WrappedRow } from '../store/sealed-rows.ts';
import type { SettingsStore } from '../store/settings.ts';

/** The message says which key is missing and what to do; for whoever starts the service. */
export class EncryptionKeyError extends Error {}

export interface EncryptionKeysDependencies {
  db: Database;
  settings: SettingsStore;
  sealedRows: SealedRowStore;
  source: KeySource;
}

export interface RotationResult {
  kekId: string;
  /** Rows whose data key was wrapped anew. */
  rewrapped: number;
  /** False when the old keys lie where they cannot be removed from here (BERTH_ENCRYPTION_KEY is set). */
  oldKeysRemoved: boolean;
}

export interface EncryptionKeys {
  /** Always of the keys as they are now: a rotation reaches running services without a restart. */
  readonly box: Box;
  /** At boot: makes the first key; refuses a database with secrets that no key here opens. */
  prepare(): Promise<void>;
  /** In a transaction that seals: what is sealed in it is under a key that stays, or the rotation waits for it. */
  hold(): Promise<void>;
  /**
   * A new current key, everything wrapped by it, the old keys removed. May be killed at any moment and run again;
   * services may run meanwhile as long as they read the same file.
   */
  rotate(onBatch?: (rewrapped: number) => void): Promise<RotationResult>;
}

/** Names the key by which new values are sealed, so that a service with older keys notices. */
const CURRENT = 'encryption_key_id';
const BATCH = 200;

export function createEncryptionKeys(deps: EncryptionKeysDependencies): EncryptionKeys {
  const { db, settings, sealedRows, source } = deps;
  let stamp: string | null = null;
  let keyIds: string[] = [];
  let loaded: Box | null = null;

  function load(): void {
    const before = source.stamp();
    const keys = source.read();
    loaded = createBox(keys);
    keyIds = keys.map(idOfKey);
    stamp = before;
  }

  function current(): Box {
    if (!loaded || source.stamp() !== stamp) load();
    return loaded!;
  }

  const box: Box = {
    get kekId() {
      return current().kekId;
    },
    seal: (plaintext, context) => current().seal(plaintext, context),
    open: (value, context) => current().open(value, context),
    rewrap: (value, context) => current().rewrap(value, context),
  };

  /** The old keys, after a new one was put before them; those of an interrupted rotation are taken up again. */
  async function begin(): Promise<string[]> {
    await settings.lockInstallation();
    const keys = source.read();
    if (source.replace && keys.length === 1) source.replace([randomBytes(32), ...keys]);
    // Waits for every transaction that holds the name: what they sealed is visible to the statements that follow.
    await settings.set(CURRENT, box.kekId);
    return keyIds.slice(1);
  }

  async function rewrapSome(oldIds: string[]): Promise<number> {
    const rows = await sealedRows.someUnder(oldIds, BATCH);
    for (const row of rows) {
      const { wrappedKey, kekId } = box.rewrap({ ...row, sealed: Buffer.alloc(0) }, contextOf(row));
      await sealedRows.rewrap({ ...row, wrappedKey, kekId });
    }
    return rows.length;
  }

  /** Only what this rotation has replaced, and only once the rows that say so are committed. */
  async function removeOldKeys(oldIds: string[]): Promise<void> {
    if (!source.replace) return;
    await db.tx(async () => {
      await settings.lockInstallation();
      if ((await sealedRows.someUnder(oldIds, 1)).length > 0) return;
      source.replace?.(source.read().filter((key) => !oldIds.includes(idOfKey(key))));
    });
  }

  /** In one piece: a rotation that goes on meanwhile must not take a key away between what is read and what is named. */
  function prepare(): Promise<void> {
    return db.tx(async () => {
      await settings.lockInstallation();
      const used = await sealedRows.secretKeyIds();
      if (source.read().length === 0) {
        if (used.length > 0)
          throw new EncryptionKeyError(missingKeyText(used, `${source.name} does not exist`));
        source.create(randomBytes(32));
      }
      load();
      const unknown = used.filter(({ kekId }) => !keyIds.includes(kekId));
      if (unknown.length > 0) {
        throw new EncryptionKeyError(missingKeyText(unknown, `the key in ${source.name} is another one`));
      }
      await settings.set(CURRENT, box.kekId);
    });
  }

  return {
    box,

    prepare,

    async hold() {
      const name = await settings.getShared(CURRENT);
      current();
      if (name !== null && keyIds.includes(name)) return;
      throw new DomainError(
        'unavailable',
        'The encryption key was rotated and this service does not have the new one.',
        {
          cause: new EncryptionKeyError(
            `${source.name} lacks the key ${name}; give every service the same file.`,
          ),
        },
      );
    },

    async rotate(onBatch = () => {}) {
      await prepare();
      const oldIds = await db.tx(begin);
      let rewrapped = 0;
      const rewrapAll = async (step: () => Promise<number>): Promise<void> => {
        for (let count = await step(); count > 0; count = await step()) onBatch((rewrapped += count));
      };
      await rewrapAll(() => db.tx(() => rewrapSome(oldIds)));
      await db.tx(async () => {
        await sealedRows.holdWriters();
        await rewrapAll(() => rewrapSome(oldIds));
      });
      await removeOldKeys(oldIds);
      return { kekId: box.kekId, rewrapped, oldKeysRemoved: source.replace !== null };
    },
  };
}

function contextOf({ table, a, b }: WrappedRow): string {
  switch (table) {
    case 'secrets':
    case 'earlier_secret_values':
      return secretContext(a, b);
    case 'sandbox_brokers':
      return brokerContext(a);
    case 'a2a_push_configs':
      return pushConfigContext(a);
    case 'a2a_signing_keys':
      return signingKeyContext(a);
    case 'channel_credentials':
      return channelContext(a, b);
    case 'webhook_endpoint_secrets':
      return webhookSecretContext(a, b);
    case 'idempotency':
      return idempotencyContext(a, b);
  }
}

function missingKeyText(used: { kekId: string; count: number }[], reason: string): string {
  const rows = used.map(({ kekId, count }) => `${count} by key ${kekId}`).join(', ');
  return (
    `The database holds sealed secrets (${rows}), but ${reason}. Without that key they cannot be read. ` +
    'Restore the key file from a back-up, or set BERTH_ENCRYPTION_KEY to that key, and start again.'
  );
}
