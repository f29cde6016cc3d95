import type { VolumePath } from '../../domain/ports/volume.ts';
import { DomainError } from '../../domain/errors.ts';
import { requirePreconditions } from '../../domain/preconditions.ts';
import { readMatch, readPreconditions } from '../http/preconditions.ts';
import type { Call, Reply } from '../http/route.ts';
import { route } from '../http/route.ts';
import { endsInSlash, readVolumePath } from '../http/volume-path.ts';
import { fileOf } from '../present/sandbox.ts';
import {
  fileDeleteQuery,
  fileListQuery,
  fileWriteQuery,
  SandboxFilePage,
  SandboxFileWritten,
} from '../schemas/sandbox.ts';
import * as example from '../schemas/sandbox-examples.ts';
import { attachment, fileHeaders, matchesTag, rangeApplies, readRange } from './download.ts';
import { unzipped } from './unzip.ts';

const tag = 'Sandbox files';

interface FileQuery {
  limit: number;
  cursor: string | null;
  list: boolean;
  archive?: 'tar' | undefined;
}

type FileCall = Call<{ agentId: string; path: string }, FileQuery, unknown>;

const readHeaders = [
  {
    name: 'Range',
    description: 'A part of a file: `bytes=0-1023`, `bytes=1024-`, `bytes=-512`.',
    example: 'bytes=0-1023',
  },
  {
    name: 'If-Match',
    description: 'An `ETag`: 412 when the file is another one by now.',
    example: '"2bq-1ek-i6f3k"',
  },
  {
    name: 'If-None-Match',
    description: 'An `ETag`: 304 when the file is still that one.',
    example: '"2bq-1ek-i6f3k"',
  },
  {
    name: 'If-Range',
    description: 'An `ETag` or date: the part only if the file is still that one, else the whole.',
    example: '"2bq-1ek-i6f3k"',
  },
  {
    name: 'Accept',
    description: '`application/x-tar`: the folder or file as an archive.',
    example: 'application/x-tar',
  },
];

const changeHeaders = [
  {
    name: 'If-Match',
    description: 'An `ETag`: only if the file is still that one. `*`: only if there is something.',
    example: '"2bq-1ek-i6f3k"',
  },
  {
    name: 'If-None-Match',
    description: '`*`: only if there is nothing yet. An `ETag`: only if the file is not that one.',
    example: '*',
  },
];

const readReplies = {
  200: {
    description: 'The file; or what is in the folder, by name; or the archive.',
    schema: SandboxFilePage,
    example: { files: [example.file], nextCursor: null },
    media: {
      'application/octet-stream': 'The bytes of a file.',
      'application/x-tar': 'An archive of a folder or file.',
    },
    headers: { ETag: 'Names this content of a file.', 'Content-Disposition': 'Always `attachment`.' },
  },
  206: {
    description: 'The part of the file.',
    schema: null,
    media: { 'application/octet-stream': 'The bytes.' },
    headers: { 'Content-Range': 'Which part of how much.' },
  },
  304: { description: 'The file is the one that you have.', schema: null },
  416: {
    description: 'The file has no such part.',
    schema: null,
    headers: { 'Content-Range': 'How long the file is: `bytes */1834`.' },
  },
} satisfies Record<number, Reply>;

const wantsTar = (accept: string | undefined): boolean =>
  accept !== undefined && /(^|[\s,])application\/x-tar\b/i.test(accept);

async function answerRead(call: FileCall) {
  const { services, caller, params, query } = call;
  const path = readVolumePath(params.path);
  const { agentId } = params;
  if (query.archive === 'tar' || (!query.list && wantsTar(call.header('accept'))))
    return sendArchive(call, path);
  const entry = await services.sandboxFiles.stat(caller, agentId, path);
  if (entry.type === 'folder' || query.list) {
    requireMatch(call, null);
    const page = await services.sandboxFiles.list(caller, agentId, path, query);
    const files = page.items.map((one) =>
      fileOf(agentId, { ...path, names: [...path.names, one.name] }, one),
    );
    return { status: 200 as const, body: { files, nextCursor: page.nextCursor } };
  }
  return sendFile(call, path);
}

/** Lists and archives have no tag. */
function requireMatch(call: FileCall, tag: string | null): void {
  requirePreconditions({ match: readMatch(call.header), noneMatch: null }, { tag });
}

async function sendArchive(call: FileCall, path: VolumePath): Promise<Response> {
  const { agentId } = call.params;
  const name = path.names.at(-1) ?? Buffer.from(path.tree);
  const headers = {
    'Content-Type': 'application/x-tar',
    ...attachment(Buffer.concat([name, Buffer.from('.tar')])),
  };
  requireMatch(call, null);
  const archive = await call.services.sandboxFiles.archive(call.caller, agentId, path);
  if (call.isHead) archive.destroy();
  return call.download(200, headers, call.isHead ? null : archive);
}

async function sendFile(call: FileCall, path: VolumePath): Promise<Response> {
  const file = await call.services.sandboxFiles.open(call.caller, call.params.agentId, path);
  try {
    const { sizeBytes, modifiedAt } = file.entry;
    const headers = fileHeaders(file.entry);
    const tag = headers['ETag']!;
    requireMatch(call, file.entry.version);
    if (matchesTag(call.header('if-none-match'), tag)) return await call.download(304, headers, null);
    const applies = rangeApplies(call.header('if-range'), tag, modifiedAt);
    const range = applies ? readRange(call.header('range'), sizeBytes) : 'whole';
    if (range === 'unsatisfiable') {
      return await call.download(416, { ...headers, 'Content-Range': `bytes */${sizeBytes}` }, null);
    }
    const { start, end } = range === 'whole' ? { start: 0, end: sizeBytes } : range;
    headers['Content-Length'] = String(end - start);
    if (range !== 'whole') headers['Content-Range'] = `bytes ${start}-${end - 1}/${sizeBytes}`;
    const content = call.isHead ? null : file.read(start, end);
    return await call.download(range === 'whole' ? 200 : 206, headers, content);
  } finally {
    file.close();
  }
}

const types = {
  'application/octet-stream': 'The bytes of the file, whatever they are.',
  'application/x-tar': 'An archive that is unpacked into the folder at the path, which is made when absent.',
  'application/gzip': 'The same, compressed.',
};

async function answerWrite(call: Call<{ agentId: string; path: string }, { mode: number | null }, unknown>) {
  const { services, caller, params, query } = call;
  const { agentId } = params;
  const path = readVolumePath(params.path);
  const type = (call.header('content-type') ?? '').split(';')[0]!.trim().toLowerCase();
  if (call.header('content-encoding') !== undefined)
    throw new DomainError('unsupported_media_type', 'Send the file without a Content-Encoding.');
  const preconditions = readPreconditions(call.header);
  const declared = call.header('content-length');
  const bytes = declared === undefined ? null : Number(declared);
  if (type === 'application/x-tar' || type === 'application/gzip') {
    const content = type === 'application/gzip' ? unzipped(call.upload()) : call.upload();
    const unpacked = await services.sandboxFiles.unpack(
      caller,
      agentId,
      path,
      { bytes, content },
      preconditions,
    );
    return { status: 200 as const, body: { file: null, unpacked } };
  }
  if (endsInSlash(params.path)) {
    if (bytes !== 0 && call.header('transfer-encoding') !== undefined)
      throw new DomainError(
        'unsupported_media_type',
        'A folder takes an archive: application/x-tar or application/gzip.',
      );
    if (bytes !== null && bytes > 0)
      throw new DomainError(
        'unsupported_media_type',
        'A folder takes an archive: application/x-tar or application/gzip.',
      );
    const created = await services.sandboxFiles.makeFolder(caller, agentId, path, preconditions);
    const entry = await services.sandboxFiles.stat(caller, agentId, path);
    return written(agentId, path, { entry, created });
  }
  const upload = { bytes, content: call.upload() };
  const options = { mode: query.mode, preconditions };
  return written(agentId, path, await services.sandboxFiles.write(caller, agentId, path, upload, options));
}

function written(
  agentId: string,
  path: VolumePath,
  { entry, created }: { entry: Parameters<typeof fileOf>[2]; created: boolean },
) {
  const body = { file: fileOf(agentId, path, entry), unpacked: null };
  const headers: Record<string, string> = entry.type === 'file' ? { ETag: `"${entry.version}"` } : {};
  if (!created) return { status: 200 as const, body, headers };
  return { status: 201 as const, body, headers: { ...headers, Location: body.file.href } };
}

const writtenExample = { file: example.file, unpacked: null };

export const sandboxFileRoutes = [
  route({
    id: 'listSandboxFiles',
    method: 'get',
    path: '/sandbox/{agentId}/files',
    tag,
    access: 'use',
    summary: 'List the workspace',
    description: 'What is in `/workspace`, by name. The same as an empty path.',
    query: fileListQuery,
    errors: ['conflict', 'precondition_failed', 'too_many_sandboxes'],
    replies: { 200: readReplies[200] },
    handler: (call) => answerRead({ ...call, params: { ...call.params, path: '' } }) as never,
  }),
  route({
    id: 'getSandboxFile',
    method: 'get',
    path: '/sandbox/{agentId}/files/{path}',
    tag,
    access: 'use',
    summary: 'Read a file or list a folder',
    description:
      'A file is answered with its bytes as they are, a folder with a page of what is in it, by name; either with an archive when that is asked for. Links are shown and not followed, and pipes, sockets and devices not read. It makes no difference whether the sandbox runs.',
    query: fileListQuery,
    requestHeaders: readHeaders,
    errors: ['conflict', 'invalid_cursor', 'precondition_failed', 'too_many_sandboxes'],
    replies: readReplies,
    handler: (call) => answerRead(call) as never,
  }),
  route({
    id: 'putSandboxFile',
    method: 'put',
    path: '/sandbox/{agentId}/files/{path}',
    tag,
    access: 'edit',
    summary: 'Write a file, make a folder, or unpack an archive',
    description:
      'The file appears whole, in one step, with the folders on its way; one that fails leaves what was there. A link of its name is replaced, never followed. A path that ends in a slash, without a body, makes a folder. An archive is unpacked when all of it was good: nothing in it may be absolute, lead through `..` or a link, or be anything but files, folders and links. Room is what the disk limit of the sandbox leaves.',
    query: fileWriteQuery,
    requestHeaders: changeHeaders,
    rawBody: types,
    errors: ['conflict', 'precondition_failed'],
    replies: {
      200: {
        description: 'It was replaced, or was there; or the archive was unpacked.',
        schema: SandboxFileWritten,
        example: { file: null, unpacked: { entries: 12, bytes: 48_211 } },
        headers: { ETag: 'Names this content.' },
      },
      201: {
        description: 'It is new.',
        schema: SandboxFileWritten,
        example: writtenExample,
        headers: { ETag: 'Names this content.', Location: 'Its address.' },
      },
    },
    handler: (call) => answerWrite(call),
  }),
  route({
    id: 'deleteSandboxFile',
    method: 'delete',
    path: '/sandbox/{agentId}/files/{path}',
    tag,
    access: 'edit',
    summary: 'Delete a file or folder',
    description:
      'A link is deleted itself. A folder that is not empty is deleted only with `recursive=true`: in one step, whatever a program does in it meanwhile.',
    query: fileDeleteQuery,
    requestHeaders: changeHeaders,
    errors: ['conflict', 'precondition_failed'],
    replies: { 204: { description: 'It is gone.', schema: null } },
    async handler({ services, caller, params, query, header }) {
      await services.sandboxFiles.remove(caller, params.agentId, readVolumePath(params.path), {
        recursive: query.recursive,
        preconditions: readPreconditions(header),
      });
      return { status: 204 as const };
    },
  }),
];
