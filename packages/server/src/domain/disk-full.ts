const NO_ROOM_CODES = new Set(['ENOSPC', 'EDQUOT']);
/** SQLSTATE `disk_full`. */
const NO_ROOM_STATE = '53100';
const CAUSES_MAX = 5;

/** Whether an error, or what caused it, says that a disk has no room: of a file, of the database, or of a tool. */
export function isDiskFull(error: unknown): boolean {
  let present: unknown = error;
  for (let depth = 0; depth < CAUSES_MAX && present instanceof Error; depth += 1) {
    const code = 'code' in present ? present.code : null;
    if (typeof code === 'string' && (NO_ROOM_CODES.has(code) || code === NO_ROOM_STATE)) return true;
    if (/No space left on device|Disk quota exceeded/.test(present.message)) return true;
    present = present.cause;
  }
  return false;
}
