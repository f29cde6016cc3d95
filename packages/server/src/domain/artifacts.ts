import type { EventBody } from './events.ts';
import type { Artifact } from './parts.ts';

type ArtifactUpdate = Extract<EventBody, { type: 'artifact.updated' }>['data'];

/** Takes an update into the artifacts of a run, which are in order of their first appearance. */
export function applyArtifact(artifacts: Map<string, Artifact>, update: ArtifactUpdate): void {
  const { artifactId, name, description, append, parts } = update;
  const before = artifacts.get(artifactId);
  artifacts.set(artifactId, {
    artifactId,
    name: name ?? before?.name ?? null,
    description: description ?? before?.description ?? null,
    parts: append && before ? [...before.parts, ...parts] : parts,
  });
}
