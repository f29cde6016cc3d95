import type { BodyHold } from '../../src/domain/flight.ts';

/** For what is read without an organisation that it counts for. */
export const uncounted: BodyHold = {
  add: () => undefined,
  addValues: () => undefined,
  remove: () => undefined,
  drop: () => undefined,
};
