/**
 * Cuts an answer into messages of at most `limit` UTF-16 units: between paragraphs when that leaves none too small,
 * else between lines, else between words. A code block that is cut is closed and opened again.
 */
export function splitText(text: string, limit: number): string[] {
  const parts: string[] = [];
  let rest = text.trim();
  let fence = '';
  while (rest !== '') {
    const head = fence === '' ? '' : `${fence}\n`;
    if (head.length + rest.length <= limit) {
      parts.push(head + rest);
      break;
    }
    const room = limit - head.length - 4;
    const end = cutAt(rest, room);
    const piece = rest.slice(0, end).trimEnd();
    const open = openFence(head + piece);
    parts.push(head + piece + (open === '' ? '' : '\n```'));
    // Inside a code block the indentation of the next line counts.
    rest = open === '' ? rest.slice(end).trimStart() : rest.slice(end).replace(/^\n/, '');
    fence = open;
  }
  return parts;
}

function cutAt(text: string, room: number): number {
  const window = text.slice(0, room);
  for (const mark of ['\n\n', '\n', ' ']) {
    const found = window.lastIndexOf(mark);
    if (found > room / 2) return found + mark.length;
  }
  const splitsPair = (text.charCodeAt(room - 1) & 0xfc00) === 0xd800;
  return splitsPair ? room - 1 : room;
}

/** The line that opened the code block in which the text ends, or nothing. */
function openFence(text: string): string {
  let open = '';
  for (const line of text.split('\n')) {
    if (!line.startsWith('```')) continue;
    open = open === '' ? line.slice(0, 40) : '';
  }
  return open;
}
