import { flushPacket, packet, PktLineError, PktLineReader } from './pkt-line.ts';

/** One line of a push: `<old> <new> <ref>` (gitprotocol-pack, "Reference Update Request"). */
export interface RefCommand {
  oldId: string;
  newId: string;
  ref: string;
}

export interface PushCommands {
  commands: RefCommand[];
  capabilities: Set<string>;
}

export const zeroId = '0'.repeat(40);

/**
 * Reads the command list at the head of a push; null while its closing flush packet has not come. Throws PktLineError
 * for what is no such list.
 */
export function readCommands(body: Buffer): PushCommands | null {
  const reader = new PktLineReader();
  reader.push(body);
  const commands: RefCommand[] = [];
  const capabilities = new Set<string>();
  let isSigned = false;
  for (;;) {
    const next = reader.next();
    if (!next) return null;
    if (next.kind !== 'data') return { commands, capabilities };
    const text = next.payload.toString('utf8');
    const nul = text.indexOf('\0');
    if (nul !== -1)
      for (const word of text
        .slice(nul + 1)
        .trim()
        .split(' '))
        capabilities.add(word);
    const match = /^([0-9a-f]{40}) ([0-9a-f]{40}) (.+?)\n?$/s.exec(nul === -1 ? text : text.slice(0, nul));
    // `shallow <id>` lines and signed pushes are git's own business.
    isSigned ||= text.startsWith('push-cert');
    if (!match && !isSigned && !/^shallow [0-9a-f]{40}\n?$/.test(text))
      throw new PktLineError('A line of its list of refs is not "<old id> <new id> <ref>".');
    if (match) commands.push({ oldId: match[1]!, newId: match[2]!, ref: match[3]! });
  }
}

/** The report of receive-pack: `unpack ok`, then `ok <ref>` or `ng <ref> <reason>`, each with its `option` lines. */
export interface PushReport {
  unpack: string;
  refs: Map<string, { ok: boolean; lines: string[] }>;
}

export function readReport(bytes: Buffer): PushReport | null {
  const reader = new PktLineReader();
  reader.push(bytes);
  const report: PushReport = { unpack: '', refs: new Map() };
  let current: { ok: boolean; lines: string[] } | null = null;
  for (let next = reader.next(); next; next = reader.next()) {
    if (next.kind !== 'data') return report.unpack === '' ? null : report;
    const line = next.payload.toString('utf8').replace(/\n$/, '');
    const match = /^(ok|ng) (\S+)/.exec(line);
    if (line.startsWith('unpack ')) report.unpack = line;
    else if (match) {
      current = { ok: match[1] === 'ok', lines: [line] };
      report.refs.set(match[2]!, current);
    } else current?.lines.push(line);
  }
  return null;
}

export function refuseRef(report: PushReport, ref: string, reason: string): void {
  report.refs.set(ref, { ok: false, lines: [`ng ${ref} ${reason}`] });
}

export function writeReport(report: PushReport): Buffer {
  const lines = [report.unpack, ...[...report.refs.values()].flatMap((entry) => entry.lines)];
  return Buffer.concat([...lines.map((line) => packet(`${line}\n`)), flushPacket]);
}
