import postgres from 'postgres';

/** What patches/postgres-<version>.patch writes into the driver; changes whenever the patch does something else. */
const REPAIR = 'berth-2';

/** The database driver is the one that npm installs, with faults that can write into another's transaction. */
export class DriverError extends Error {}

/**
 * Throws DriverError unless the driver carries the repair of this version (docs/decisions/0050). Nothing may talk to a
 * database before it.
 */
export function checkDriver(driver: { repairedBy?: unknown } = postgres as { repairedBy?: unknown }): void {
  if (driver.repairedBy === REPAIR) return;
  throw new DriverError(
    'The database driver in node_modules/postgres is not repaired by this version of Berth (patches/): ' +
      'run `node scripts/setup.mjs` in the checkout, or start with `npm start`, which does so.',
  );
}
