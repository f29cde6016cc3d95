import type { Snapshot } from '../../services/api.ts';
import { given } from '../http/given.ts';
import { route } from '../http/route.ts';
import { pageQuery } from '../schemas/basics.ts';
import { snapshot as example } from '../schemas/sandbox-examples.ts';
import { SnapshotAnswer, SnapshotCreate, SnapshotPage, SnapshotRestoreSend } from '../schemas/snapshot.ts';

const tag = 'Snapshots';
const one = { schema: SnapshotAnswer, example: { snapshot: example } };

const snapshotOf = (snapshot: Snapshot) => ({
  id: snapshot.id,
  agentId: snapshot.agentId,
  name: snapshot.name,
  sizeBytes: snapshot.bytes,
  storedBytes: snapshot.storedBytes,
  createdAt: snapshot.createdAt.toISOString(),
});

export const snapshotRoutes = [
  route({
    id: 'listSnapshots',
    method: 'get',
    path: '/sandbox/{agentId}/snapshots',
    tag,
    access: 'use',
    summary: "List an agent's snapshots",
    description: 'Newest first.',
    query: pageQuery,
    replies: {
      200: {
        description: 'A page of snapshots.',
        schema: SnapshotPage,
        example: { snapshots: [example], nextCursor: null },
      },
    },
    async handler({ services, caller, params, query }) {
      const page = await services.snapshots.list(caller, params.agentId, query);
      return {
        status: 200 as const,
        body: { snapshots: page.items.map(snapshotOf), nextCursor: page.nextCursor },
      };
    },
  }),
  route({
    id: 'createSnapshot',
    method: 'post',
    path: '/sandbox/{agentId}/snapshots',
    tag,
    access: 'edit',
    summary: 'Take a snapshot',
    description:
      'Keeps all files of the agent as they are now. A sandbox that runs is frozen meanwhile and goes on afterwards. Content that another snapshot of the organisation has is not stored again.',
    body: SnapshotCreate,
    bodyExample: { name: 'before the migration' },
    idempotency: 'lease',
    errors: ['conflict', 'body_too_large'],
    replies: {
      201: { ...one, description: 'The snapshot.', headers: { Location: 'Path of the snapshot.' } },
    },
    async handler({ services, caller, params, body }) {
      const snapshot = await services.snapshots.create(caller, params.agentId, given(body));
      return {
        status: 201 as const,
        body: { snapshot: snapshotOf(snapshot) },
        headers: { Location: `/sandbox/${snapshot.agentId}/snapshots/${snapshot.id}` },
      };
    },
  }),
  route({
    id: 'getSnapshot',
    method: 'get',
    path: '/sandbox/{agentId}/snapshots/{snapshotId}',
    tag,
    access: 'use',
    summary: 'Get a snapshot',
    description: 'Its name, size and time.',
    replies: { 200: { ...one, description: 'The snapshot.' } },
    async handler({ services, caller, params }) {
      const snapshot = await services.snapshots.get(caller, params.agentId, params.snapshotId);
      return { status: 200 as const, body: { snapshot: snapshotOf(snapshot) } };
    },
  }),
  route({
    id: 'restoreSnapshot',
    method: 'post',
    path: '/sandbox/{agentId}/snapshots/{snapshotId}/restore',
    tag,
    access: 'edit',
    summary: 'Go back to a snapshot, or give it to another agent',
    description:
      'Replaces all files of the agent by those of the snapshot; with `toAgentId` those of another agent, which thereby has a copy of its own (a fork). A sandbox that runs is stopped; while a turn is under way in it the answer is 409.',
    body: SnapshotRestoreSend,
    bodyExample: {},
    idempotency: 'lease',
    errors: ['conflict'],
    replies: { 200: { ...one, description: 'The snapshot, whose files are there now.' } },
    async handler({ services, caller, params, body }) {
      const { agentId, snapshotId } = params;
      const snapshot = await services.snapshots.restore(caller, agentId, snapshotId, given(body));
      return { status: 200 as const, body: { snapshot: snapshotOf(snapshot) } };
    },
  }),
  route({
    id: 'deleteSnapshot',
    method: 'delete',
    path: '/sandbox/{agentId}/snapshots/{snapshotId}',
    tag,
    access: 'edit',
    summary: 'Delete a snapshot',
    description: 'What no other snapshot needs is deleted from the disk.',
    replies: { 204: { description: 'It is gone.', schema: null } },
    async handler({ services, caller, params }) {
      await services.snapshots.remove(caller, params.agentId, params.snapshotId);
      return { status: 204 as const };
    },
  }),
];
