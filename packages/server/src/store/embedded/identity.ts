import { chmodSync, chownSync, lstatSync, mkdirSync, readFileSync } from 'node:fs';
import { EmbeddedError } from './errors.ts';

/** The user under whom PostgreSQL runs, since it refuses to run as root. */
export interface Identity {
  uid: number;
  gid: number;
  /** Options of `spawn`; empty when it is our own user. */
  spawn: { uid?: number; gid?: number };
}

/**
 * A uid of PostgreSQL's own for a service that is root: nobody else's, in the range that neither Debian's accounts
 * nor systemd's dynamic users (systemd.io, "Users, Groups, UIDs and GIDs") nor our sandboxes take.
 */
const OWN_UID = 60_932;

/** As root the owner of an existing data directory, else PostgreSQL's own uid; otherwise ourselves. */
export function chooseIdentity(clusterDir: string): Identity {
  const uid = process.getuid?.() ?? -1;
  const gid = process.getgid?.() ?? -1;
  if (uid !== 0) return { uid, gid, spawn: {} };
  const owner = lstatSync(clusterDir, { throwIfNoEntry: false });
  const own = owner && owner.uid !== 0 ? { uid: owner.uid, gid: owner.gid } : { uid: OWN_UID, gid: OWN_UID };
  return { ...own, spawn: own };
}

/**
 * Under whom initdb runs: unlike the server it insists on a user with a name. As root that is a named stand-in
 * ("postgres" or "nobody"), whose files are handed over afterwards.
 */
export function chooseMaker(identity: Identity): Identity {
  if (identity.spawn.uid === undefined) return identity;
  const users = readFileSync('/etc/passwd', 'utf8')
    .split('\n')
    .map((line) => line.split(':'));
  const named =
    users.find((user) => Number(user[2]) === identity.uid) ??
    users.find((user) => user[0] === 'postgres') ??
    users.find((user) => user[0] === 'nobody');
  if (!named)
    throw new EmbeddedError(
      'To make the database as root, /etc/passwd must have a user "postgres" or "nobody".',
    );
  const ids = { uid: Number(named[2]), gid: Number(named[3]) };
  return { ...ids, spawn: ids };
}

/**
 * Makes a folder with exactly this owner and mode, or takes an existing one after a check that no other user could
 * have put it there or can write to it (folders below /tmp can be made by anybody).
 */
export function ensureFolder(path: string, mode: number, owner?: Identity): void {
  const us = process.getuid?.() ?? -1;
  mkdirSync(path, { recursive: true, mode: 0o755 });
  const stat = lstatSync(path);
  const trusted = [0, us, owner?.uid ?? us];
  if (!stat.isDirectory() || !trusted.includes(stat.uid)) {
    throw new EmbeddedError(
      `${path} must be a folder of the service's own; another user (uid ${stat.uid}) made it.`,
    );
  }
  if (stat.uid === us || us === 0) chmodSync(path, mode);
  if (owner && us === 0) chownSync(path, owner.uid, owner.gid);
}
