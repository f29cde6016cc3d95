/** In one turn of the event loop all walks together take at most so long, and one entry more each. */
const TURN_MS = 4;
/** And so many entries: a clock that stands still must not hold everybody up. */
const ENTRIES_A_TURN = 32;

const waiting: (() => void)[] = [];
let isArmed = false;
let startedMs = 0;
let entries = 0;

/**
 * Awaited before each entry of a walk, whose calls are synchronous: each is short, and a million of them must not be one
 * long one for everybody else. When the turn is used up, the walks wait in a row, and one a turn goes on, so that many
 * walks hold others up no longer than one does. Null: go on at once.
 */
export function turn(): Promise<void> | null {
  if (!isArmed) begin();
  entries += 1;
  if (entries <= ENTRIES_A_TURN && performance.now() - startedMs < TURN_MS) return null;
  return new Promise((resolve) => waiting.push(resolve));
}

function begin(): void {
  startedMs = performance.now();
  entries = 0;
  isArmed = true;
  setImmediate(pass);
}

function pass(): void {
  isArmed = false;
  const next = waiting.shift();
  if (!next) return;
  begin();
  entries = 1;
  next();
}
