/**
 * The array types that our statements use. The driver would ask each new connection for all that there are: one more
 * round trip, and a rejection that nobody handles (which ends the process) when the connection is lost just then.
 */

interface ArrayType {
  to: number;
  from: number[];
  serialize(values: readonly unknown[]): string;
  parse(text: string): unknown[];
}

/** Oids of PostgreSQL's own types never change (src/include/catalog/pg_type.dat). */
export const arrayTypes = {
  textArray: arrayType(1009, (text) => text),
  uuidArray: arrayType(2951, (text) => text),
  integerArray: arrayType(1007, Number),
  bigintArray: arrayType(1016, BigInt),
  timestamptzArray: arrayType(1185, (text) => new Date(text)),
};

function arrayType(oid: number, parseElement: (text: string) => unknown): ArrayType {
  return {
    to: oid,
    from: [oid],
    serialize: (values) => `{${values.map(quoted).join(',')}}`,
    parse: (text) => elements(text).map((element) => (element === null ? null : parseElement(element))),
  };
}

/** Texts that JSON writes as an array literal does: quotes and backslashes with a backslash before them, all else as it is. */
const sameInJson = /^[ -\ud7ff\ue000-\uffff]*$/;

function quoted(value: unknown): string {
  if (value === null || value === undefined) return 'NULL';
  if (typeof value === 'number') return String(value);
  const text = value instanceof Date ? value.toISOString() : String(value);
  // Events of a busy service are thousands of such texts a second; this way takes half the time for JSON.
  if (sameInJson.test(text)) return JSON.stringify(text);
  return `"${text.replaceAll('\\', '\\\\').replaceAll('"', '\\"')}"`;
}

/** The elements of a one-dimensional array literal (PostgreSQL manual, section 8.15.6). */
function elements(literal: string): (string | null)[] {
  const found: (string | null)[] = [];
  const element = /"((?:[^"\\]|\\.)*)"|([^,{}"]+)/gs;
  for (const [, inQuotes, plain] of literal.slice(1, -1).matchAll(element)) {
    if (inQuotes !== undefined) found.push(inQuotes.replace(/\\(.)/gs, '$1'));
    else found.push(plain === 'NULL' ? null : plain!);
  }
  return found;
}
