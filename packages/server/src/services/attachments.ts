import { createHash } from 'node:crypto';
import { attachmentName } from '../domain/attachment-name.ts';
import { cleanText } from '../domain/clean-text.ts';
import { DomainError } from '../domain/errors.ts';
import { limits } from '../domain/limits.ts';
import type { Log } from '../domain/log.ts';
import type { Principal } from '../domain/nouns.ts';
import type { Attachment, HttpReply } from '../domain/ports/channel.ts';
import { UrlRefused } from '../domain/url-guard.ts';
import { requireNotTooMany, TryLater, type GuardedCaller } from './guarded-call.ts';
import type { SandboxFilesService } from './sandbox-api.ts';

export interface Attachments {
  /**
   * Puts the files of a message into the workspace of its agent, and says line by line where each is, or why it is not
   * there: a message without its files is better than none. `key`: the same for every attempt at it. Rejects with TryLater
   * alone, when the provider says that it is asked too much, and for no longer than `patienceMs`.
   */
  save(
    to: { channelId: string; orgId: string; agentId: string },
    key: string,
    files: Attachment[],
    patienceMs?: number,
  ): Promise<string[]>;
}

interface Dependencies {
  caller: GuardedCaller;
  files: Pick<SandboxFilesService, 'write'>;
  log: Log;
}

const timeoutMs = 30_000;
/** A file, the answer that says where it is, and one more. */
const hops = 3;
const folder = 'attachments';

class NotSaved extends Error {}

export function createAttachments({ caller, files, log }: Dependencies): Attachments {
  /** Each is held in memory, so few are fetched at once. */
  const waiting: (() => void)[] = [];
  let active = 0;

  async function inTurn<T>(work: () => Promise<T>): Promise<T> {
    if (active >= limits.attachmentsAtOnce) await new Promise<void>((go) => waiting.push(go));
    else active += 1;
    try {
      return await work();
    } finally {
      // The place goes to the next in line.
      const next = waiting.shift();
      if (next) next();
      else active -= 1;
    }
  }

  async function bytesOf({ content, mediaType }: Attachment, maxBytes: number): Promise<Buffer> {
    if (content.at === 'inline') return content.bytes;
    let at = content;
    for (let hop = 0; hop < hops; hop += 1) {
      const reply = await caller.call(at.call, { timeoutMs, maxBytes });
      const next = at.next?.(reply) ?? null;
      if (next !== null) {
        at = next;
        continue;
      }
      requireNotTooMany(reply);
      if (reply.status < 200 || reply.status >= 300) {
        throw new NotSaved(`the provider answered with status ${reply.status}`);
      }
      if (isLoginPage(reply, mediaType)) throw new NotSaved('the provider asks for a login; check the token');
      return reply.body;
    }
    throw new NotSaved('the provider does not say where it is');
  }

  async function write(
    to: { channelId: string; orgId: string; agentId: string },
    names: string[],
    bytes: Buffer,
  ): Promise<void> {
    // The agent's own files are for its owners to change; what reaches it is put there by the service.
    const writer: Principal = {
      keyId: to.channelId,
      orgId: to.orgId,
      scope: 'edit',
      binding: 'agent-bound',
      agentId: to.agentId,
    };
    const path = { tree: 'workspace' as const, names: names.map((name) => Buffer.from(name)) };
    const upload = { bytes: bytes.length, content: once(bytes) };
    try {
      // What is there already was put there by an attempt before, or is the agent's own.
      const preconditions = { match: null, noneMatch: '*' as const };
      await files.write(writer, to.agentId, path, upload, { mode: null, preconditions });
    } catch (error) {
      if (!(error instanceof DomainError) || error.code !== 'precondition_failed') throw error;
    }
  }

  return {
    async save(to, key, given, patienceMs = 0) {
      if (given.length === 0) return [];
      const place = createHash('sha256').update(`${to.channelId}:${key}`).digest('hex').slice(0, 16);
      const taken = new Set<string>();
      let left: number = limits.attachmentsBytes;
      const lines: string[] = [];
      for (const file of given.slice(0, limits.attachmentsPerMessage)) {
        const told = `${cleanText(file.name.slice(0, 200))} (${cleanText(file.mediaType.slice(0, 100))}`;
        try {
          const maxBytes = Math.min(limits.attachmentBytes, left);
          if ((file.sizeBytes ?? 0) > maxBytes) throw new NotSaved('it is too large');
          const name = attachmentName(file.name, taken);
          const size = await inTurn(async () => {
            const bytes = await bytesOf(file, maxBytes);
            if (bytes.length > maxBytes) throw new NotSaved('it is too large');
            await write(to, [folder, place, name], bytes);
            return bytes.length;
          });
          left -= size;
          lines.push(
            `- /workspace/${folder}/${place}/${name} (${cleanText(file.mediaType.slice(0, 100))}, ${size} bytes)`,
          );
        } catch (error) {
          if (error instanceof TryLater && (error.afterMs ?? 0) < patienceMs) throw error;
          lines.push(`- ${told}): not there, ${reasonOf(error)}`);
          log.info('An attachment could not be saved.', { channelId: to.channelId, error });
        }
      }
      const more = given.length - limits.attachmentsPerMessage;
      if (more > 0) lines.push(`- ${more} more, which were left out`);
      return lines;
    },
  };
}

function reasonOf(error: unknown): string {
  if (error instanceof NotSaved) return error.message;
  if (error instanceof TryLater) return 'the provider answered with status 429';
  if (error instanceof UrlRefused) return 'its address may not be called';
  if (error instanceof DomainError && error.code === 'body_too_large')
    return 'the disk of the sandbox is full';
  if (error instanceof Error && /is larger than/.test(error.message)) return 'it is too large';
  if (error instanceof DomainError) return 'it could not be written';
  return 'it could not be fetched';
}

/** Slack answers so to a token that may not read files. */
function isLoginPage(reply: HttpReply, mediaType: string): boolean {
  return (reply.headers.get('content-type') ?? '').startsWith('text/html') && !mediaType.startsWith('text/');
}

async function* once(bytes: Buffer): AsyncGenerator<Buffer> {
  yield bytes;
}
