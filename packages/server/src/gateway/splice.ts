import type { FieldSpan } from './json-fields.ts';

/** Replaces bytes `start` to `end` of the body. */
export interface Edit {
  start: number;
  end: number;
  text: string;
}

/** A field that is not there is put first, which changes no byte of the others. */
export function setField(fields: Map<string, FieldSpan>, field: string, json: string): Edit {
  const span = fields.get(field);
  if (span) return { ...span, text: json };
  return { start: -1, end: -1, text: `${JSON.stringify(field)}:${json}` };
}

/** The body's own bytes, with the edits in between. */
export function splice(body: Buffer, edits: Edit[]): Buffer[] {
  if (edits.length === 0) return [body];
  const pieces: Buffer[] = [];
  let at = 0;
  const added = edits.filter((edit) => edit.start === -1).map((edit) => edit.text);
  if (added.length > 0) {
    at = body.indexOf(0x7b) + 1;
    // An object without fields takes no comma after the new one.
    const isEmpty = /^\s*\}/.test(body.toString('latin1', at, at + 64));
    pieces.push(body.subarray(0, at), Buffer.from(added.join(',') + (isEmpty ? '' : ',')));
  }
  const replaced = edits.filter((edit) => edit.start !== -1).sort((a, b) => a.start - b.start);
  for (const edit of replaced) {
    pieces.push(body.subarray(at, edit.start), Buffer.from(edit.text));
    at = edit.end;
  }
  pieces.push(body.subarray(at));
  return pieces;
}
