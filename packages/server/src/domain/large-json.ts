import { isLargeValue } from './json-shape.ts';
import { atOnce, halfOfLoop, Lane, oneStep, smallBytes, type Sliced } from './slices.ts';

/** Who reads what is stored. */
export interface Reader {
  orgId: string;
  keyId: string;
}

/** Beside that of bodies: a turn that begins does not wait for those who read what is large. */
const answers = new Lane(halfOfLoop);

const inTurns = <T>({ orgId, keyId }: Reader, work: Sliced<T>): Promise<T> =>
  answers.runApart(orgId, work, { member: keyId });

/** The value as JSON; a large one has turns with what others read. */
export const jsonText = (reader: Reader, value: unknown): string | Promise<string> =>
  isLargeValue(value)
    ? inTurns(
        reader,
        oneStep(() => JSON.stringify(value)),
      )
    : JSON.stringify(value);

/** What stands in stored texts of JSON, null as it is; those that are large together have turns with what others read. */
export function parsedTexts(
  reader: Reader,
  texts: readonly (string | null)[],
): unknown[] | Promise<unknown[]> {
  const chars = texts.reduce((sum, text) => sum + (text?.length ?? 0), 0);
  return chars > smallBytes ? inTurns(reader, parseAll(texts)) : atOnce(parseAll(texts));
}

function* parseAll(texts: readonly (string | null)[]): Sliced<unknown[]> {
  const values: unknown[] = [];
  for (const text of texts) {
    yield;
    values.push(text === null ? null : JSON.parse(text));
  }
  return values;
}
