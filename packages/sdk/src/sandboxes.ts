import { BerthError } from './errors.ts';
import type { RequestOptions, Send } from './http.ts';
import { readSse } from './sse.ts';
import { followStream, type FollowOptions } from './streams.ts';
import type {
  ExecAnswer,
  ExecCreate,
  Sandbox,
  SandboxAnswer,
  SandboxFile,
  SandboxFilePage,
  SandboxFileWritten,
  SandboxPage,
  Snapshot,
  SnapshotAnswer,
  SnapshotCreate,
  SnapshotPage,
  SnapshotRestoreSend,
} from './types.ts';

/** What a streamed command tells. `data` is in the encoding that was asked for. */
export type ExecEvent =
  | { type: 'stdout' | 'stderr'; data: string }
  | ({ type: 'exit' } & Pick<ExecAnswer, 'exitCode' | 'signal' | 'timedOut' | 'sandboxEnd' | 'durationMs'>);

export interface LogLine {
  /** Pass it as `after` to go on from here. */
  id: string;
  at: string;
  text: string;
}

type Bytes = Uint8Array | ReadableStream<Uint8Array>;

export interface WriteOptions {
  /** Permission bits: three octal digits, or four with a leading 0, e.g. `755`. */
  mode?: string;
  /** The `etag` that the file must still have; else BerthError 412. */
  ifMatch?: string;
  /** `*`: only when there is nothing yet. */
  ifNoneMatch?: string;
  signal?: AbortSignal;
}

const id = encodeURIComponent;

/** A path as the URL takes it: relative to `/workspace`, absolute with a leading slash. */
export function sandboxFilePath(path: string): string {
  return path.split('/').map(encodeURIComponent).join('/');
}

/** The calls under `/sandbox`. */
export function createSandboxes(send: Send) {
  const json = async <T>(method: string, path: string, request?: RequestOptions): Promise<T> => {
    const response = await send(method, path, request);
    return (response.status === 204 ? undefined : await response.json()) as T;
  };
  const change = (verb: string) => async (agentId: string) =>
    (await json<SandboxAnswer>('POST', `/sandbox/${id(agentId)}/${verb}`)).sandbox;
  const filePath = (agentId: string, path: string) =>
    `/sandbox/${id(agentId)}/files/${sandboxFilePath(path)}`;

  return {
    list: async (query: { limit?: number; cursor?: string } = {}) => {
      const page = await json<SandboxPage>('GET', '/sandbox', { query });
      return { items: page.sandboxes as Sandbox[], nextCursor: page.nextCursor };
    },
    get: async (agentId: string) => (await json<SandboxAnswer>('GET', `/sandbox/${id(agentId)}`)).sandbox,
    start: change('start'),
    stop: change('stop'),
    restart: change('restart'),
    kill: change('kill'),

    /** Waits for the end of the command. */
    exec: (agentId: string, input: ExecCreate, signal?: AbortSignal) =>
      json<ExecAnswer>('POST', `/sandbox/${id(agentId)}/exec`, { body: input, ...given(signal) }),
    /** Output as it comes. Leaving the loop ends the command. */
    async *execStream(agentId: string, input: ExecCreate, signal?: AbortSignal): AsyncGenerator<ExecEvent> {
      const response = await send('POST', `/sandbox/${id(agentId)}/exec`, {
        body: input,
        headers: { accept: 'text/event-stream' },
        ...given(signal),
      });
      let isOver = false;
      let cause: unknown;
      try {
        for await (const { event, data } of readSse(response.body!)) {
          isOver ||= event === 'exit';
          yield { type: event, ...(JSON.parse(data) as object) } as ExecEvent;
        }
      } catch (error) {
        if (signal?.aborted || error instanceof SyntaxError) throw error;
        cause = error;
      }
      if (!isOver)
        throw new BerthError(
          'The connection broke off before the command had ended: what became of it is not known, and it is not repeated.',
          { status: 0, cause },
        );
    },

    /** The kept lines as text. */
    logs: async (agentId: string, after?: string) =>
      (
        await send('GET', `/sandbox/${id(agentId)}/logs`, {
          query: { after },
          headers: { accept: 'text/plain' },
        })
      ).text(),
    /** Ends with the sandbox; a connection that breaks is taken up again after the last line. */
    followLogs: (
      agentId: string,
      { after, ...options }: { after?: string } & Pick<FollowOptions, 'signal' | 'onReconnect'> = {},
    ): AsyncGenerator<LogLine> =>
      followStream(
        send,
        `/sandbox/${id(agentId)}/logs`,
        {
          query: { after },
          place: null,
          read: ({ id, data }) => ({ id: id ?? '', ...(JSON.parse(data) as { at: string; text: string }) }),
          placeAfter: (line) => line.id,
          isEnd: () => false,
          isOver: null,
          endsWhole: true,
        },
        options,
      ),

    snapshots: {
      list: async (agentId: string, query: { limit?: number; cursor?: string } = {}) => {
        const page = await json<SnapshotPage>('GET', `/sandbox/${id(agentId)}/snapshots`, { query });
        return { items: page.snapshots as Snapshot[], nextCursor: page.nextCursor };
      },
      create: async (agentId: string, input: SnapshotCreate = {}) =>
        (await json<SnapshotAnswer>('POST', `/sandbox/${id(agentId)}/snapshots`, { body: input })).snapshot,
      /** With `toAgentId` the files become those of another agent. */
      restore: async (agentId: string, snapshotId: string, input: SnapshotRestoreSend = {}) =>
        (
          await json<SnapshotAnswer>('POST', `/sandbox/${id(agentId)}/snapshots/${id(snapshotId)}/restore`, {
            body: input,
          })
        ).snapshot,
      delete: (agentId: string, snapshotId: string) =>
        json<void>('DELETE', `/sandbox/${id(agentId)}/snapshots/${id(snapshotId)}`),
    },

    files: {
      list: async (agentId: string, path = '', query: { limit?: number; cursor?: string } = {}) => {
        const page = await json<SandboxFilePage>('GET', filePath(agentId, path), {
          query: { ...query, list: 'true' },
        });
        return { items: page.files as SandboxFile[], nextCursor: page.nextCursor };
      },
      /** Whether there is a folder; throws BerthError 404 when there is nothing. */
      isFolder: async (agentId: string, path: string) => {
        const ask = (method: string) => send(method, filePath(agentId, path), { headers: { accept: '*/*' } });
        const response = await ask('HEAD').catch(async (error: unknown) => {
          // The answer to a HEAD has no body, so that an error tells no more than its status; that to a GET says why.
          if (!(error instanceof BerthError) || error.status === 0) throw error;
          const found = await ask('GET');
          await found.body?.cancel();
          return found;
        });
        return response.headers.get('content-type') === 'application/json';
      },
      /** The answer with the bytes of a file. */
      read: (agentId: string, path: string, signal?: AbortSignal) =>
        send('GET', filePath(agentId, path), { headers: { accept: '*/*' }, ...given(signal) }),
      write: (agentId: string, path: string, bytes: Bytes, options: WriteOptions = {}) =>
        json<SandboxFileWritten>('PUT', filePath(agentId, path), {
          bytes,
          query: { mode: options.mode },
          headers: { 'content-type': 'application/octet-stream', ...conditions(options) },
          ...given(options.signal),
        }),
      /** A folder as a tar archive. */
      archive: (agentId: string, path: string, signal?: AbortSignal) =>
        send('GET', filePath(agentId, path), {
          query: { archive: 'tar' },
          headers: { accept: '*/*' },
          ...given(signal),
        }),
      /** A tar archive into a folder. */
      unpack: (agentId: string, path: string, bytes: Bytes, signal?: AbortSignal) =>
        json<SandboxFileWritten>('PUT', filePath(agentId, path), {
          bytes,
          headers: { 'content-type': 'application/x-tar' },
          ...given(signal),
        }),
      remove: (agentId: string, path: string, recursive = false, options: { ifMatch?: string } = {}) =>
        json<void>('DELETE', filePath(agentId, path), {
          query: recursive ? { recursive: 'true' } : {},
          headers: conditions(options),
        }),
    },
  };
}

/** Where a terminal is, and what to offer as subprotocols. */
export function terminalAddress(
  options: { baseUrl: string; apiKey: string },
  agentId: string,
  query: Record<string, string | number>,
): { url: string; protocols: string[] } {
  const url = new URL(`${options.baseUrl.replace(/\/+$/, '')}/sandbox/${id(agentId)}/terminal`);
  url.protocol = url.protocol.replace('http', 'ws');
  for (const [name, value] of Object.entries(query)) url.searchParams.set(name, String(value));
  return { url: url.href, protocols: ['berth.terminal.v1', `berth.key.${options.apiKey}`] };
}

const given = (signal: AbortSignal | undefined) => (signal ? { signal } : {});

function conditions(given: { ifMatch?: string; ifNoneMatch?: string }): Record<string, string> {
  return {
    ...(given.ifMatch !== undefined && { 'if-match': given.ifMatch }),
    ...(given.ifNoneMatch !== undefined && { 'if-none-match': given.ifNoneMatch }),
  };
}
