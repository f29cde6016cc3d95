/**
 * Work on a body whose author chose its shape: it gives way between slices of this many bytes, so that nobody else waits
 * for long. A smaller body is done in one go.
 */
export const sliceBytes = 128 * 1024;

/** Gives way by `yield`. */
export type Sliced<T> = Generator<void, T>;

/** What is left of the present slice, for all parts of one piece of work together. */
export class Pace {
  leftBytes = sliceBytes;
  /** Fields' names and values that were seen so far, with those in between that hold others. */
  values = 0;
}

/** Does the work; between its slices the event loop turns once. */
export async function inSlices<T>(work: Sliced<T>): Promise<T> {
  for (;;) {
    const step = work.next();
    if (step.done) return step.value;
    await new Promise((resolve) => setImmediate(resolve));
  }
}
