/**
 * How many names and values a text of JSON has, counted without reading it: an empty list or object counts twice. A reader takes
 * time and memory for each of them, of which a text of a few megabytes can hold millions. Ends beyond `max`, with more than that.
 */
export function countValues(json: string, max: number): number {
  let count = 1;
  for (let at = 0; at < json.length && count <= max; at += 1) {
    const code = json.charCodeAt(at);
    if (code === 0x22) at = endOfText(json, at + 1);
    // A comma or colon is followed by one more, and an opening bracket by the first of those inside.
    else if (code === 0x2c || code === 0x3a || code === 0x5b || code === 0x7b) count += 1;
  }
  return count;
}

/** Of the quote that ends the text which begins at `from`. */
function endOfText(json: string, from: number): number {
  const quote = json.indexOf('"', from);
  if (quote < 0) return json.length;
  if (json.charCodeAt(quote - 1) !== 0x5c) return quote;
  // It may be escaped. Texts with quotes in them have many: to search for each would take longer than to look at all.
  for (let at = from; at < json.length; at += 1) {
    const code = json.charCodeAt(at);
    if (code === 0x5c) at += 1;
    else if (code === 0x22) return at;
  }
  return json.length;
}
