/** Of a body whose author chose its shape, so much is looked at in one step of `domain/slices.ts`. */
export const sliceBytes = 128 * 1024;

/** What is left of the present slice, for all parts of one piece of work together. */
export class Pace {
  leftBytes = sliceBytes;
  /** Fields' names and values that were seen so far, with those in between that hold others. */
  values = 0;
}
