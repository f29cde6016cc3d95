import { z } from 'zod';
import { limits } from '../../domain/limits.ts';
import { model, nextCursor, text, time, uuid } from './basics.ts';

export const Snapshot = model(
  'Snapshot',
  z.object({
    id: uuid('Identifier of the snapshot.'),
    agentId: uuid('The agent whose files they are.'),
    name: z.string().describe('What you called it; may be empty.'),
    sizeBytes: z.int().describe('Of all files together.'),
    storedBytes: z.int().describe('What it took on the disk: what other snapshots have is not stored again.'),
    createdAt: time('When it was taken.'),
  }),
  'The files of an agent, `/workspace` and `/home/agent`, at a moment. It goes with its agent.',
);
export const SnapshotAnswer = model('SnapshotAnswer', z.object({ snapshot: Snapshot }));
export const SnapshotPage = model('SnapshotPage', z.object({ snapshots: z.array(Snapshot), nextCursor }));
export const SnapshotCreate = model(
  'SnapshotCreate',
  z.strictObject({ name: text(0, limits.nameChars, `Up to ${limits.nameChars} characters.`).optional() }),
);
export const SnapshotRestoreSend = model(
  'SnapshotRestoreSend',
  z.strictObject({
    toAgentId: z
      .string()
      .meta({
        format: 'uuid',
        description: 'Another agent, whose files become these; its own agent when left out.',
      })
      .optional(),
  }),
);
