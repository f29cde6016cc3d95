export interface RemoteRef {
  ref: string;
  objectId: string;
}

export interface RemoteRefs {
  /** The branch that the remote's HEAD names. */
  head: string | null;
  refs: Map<string, string>;
}

/** Reads `git ls-remote --symref`: `ref: <branch>\tHEAD`, then `<id>\t<ref>` lines. */
export function parseRemoteRefs(text: string): RemoteRefs {
  const refs = new Map<string, string>();
  let head: string | null = null;
  for (const line of text.split('\n')) {
    const symref = /^ref: (refs\/heads\/\S+)\tHEAD$/.exec(line);
    if (symref) head = symref[1]!;
    const match = /^([0-9a-f]{40})\t(\S+)$/.exec(line);
    if (match) refs.set(match[2]!, match[1]!);
  }
  return { head, refs };
}

/** A branch wins over a tag of the same name; the id of an annotated tag is that of its commit. */
export function chooseRef(remote: RemoteRefs, wanted: string | null): RemoteRef | null {
  if (wanted === null) {
    const objectId = remote.refs.get('HEAD');
    if (objectId === undefined) return null;
    // A server that does not say which branch HEAD is still gives its commit.
    return { ref: remote.head ?? 'HEAD', objectId };
  }
  const names = wanted.startsWith('refs/') ? [wanted] : [`refs/heads/${wanted}`, `refs/tags/${wanted}`];
  for (const ref of names) {
    const objectId = remote.refs.get(`${ref}^{}`) ?? remote.refs.get(ref);
    if (objectId !== undefined) return { ref, objectId };
  }
  return null;
}
