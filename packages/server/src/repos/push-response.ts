import type { ServerResponse } from 'node:http';
import { flushPacket, packet, PktLineReader, sideBand } from './pkt-line.ts';
import { readReport, writeReport, type PushReport } from './push-report.ts';
import { terminalLine } from './terminal.ts';

const maxReportBytes = 1024 * 1024;
/** `0005` and the data channel: an empty frame, as receive-pack itself sends to keep a connection open. */
const keepAliveFrame = packet(Buffer.from([1]));

/**
 * The answer to one push. It passes git's progress on as it comes, and holds the report back until the deployment is
 * over, since only then it is known whether the push counts.
 */
export class PushResponse {
  readonly #response: ServerResponse;
  readonly #maxFrame: number | null;
  readonly #frames = new PktLineReader();
  #report: Buffer[] = [];
  #reportBytes = 0;

  constructor(response: ServerResponse, capabilities: Set<string>) {
    this.#response = response;
    // gitprotocol-capabilities: `side-band` packets hold at most 1000 bytes with their length.
    this.#maxFrame = capabilities.has('side-band-64k') ? 65_515 : capabilities.has('side-band') ? 995 : null;
  }

  /** One chunk of what receive-pack writes. */
  take(chunk: Buffer): void {
    if (this.#maxFrame === null) return this.#hold(chunk);
    this.#frames.push(chunk);
    for (let next = this.#frames.next(); next; next = this.#frames.next()) {
      if (next.kind !== 'data') continue;
      if (next.payload[0] === 1) this.#hold(next.payload.subarray(1));
      else this.#write(packet(next.payload));
    }
  }

  #hold(chunk: Buffer): void {
    this.#reportBytes += chunk.length;
    if (this.#reportBytes <= maxReportBytes) this.#report.push(Buffer.from(chunk));
  }

  report(): PushReport | null {
    return readReport(Buffer.concat(this.#report));
  }

  progress(line: string): void {
    if (this.#maxFrame !== null) this.#write(sideBand(2, `${terminalLine(line)}\n`, this.#maxFrame));
  }

  keepAlive(): void {
    if (this.#maxFrame !== null) this.#write(keepAliveFrame);
  }

  /** Without a report, what git wrote is passed on as it is. */
  end(report: PushReport | null): void {
    const bytes = report ? writeReport(report) : Buffer.concat(this.#report);
    if (this.#maxFrame === null) this.#write(bytes);
    else this.#write(Buffer.concat([sideBand(1, bytes, this.#maxFrame), flushPacket]));
    this.#response.end();
  }

  /** A client that went away misses the words, nothing else. Until the first of them, the push can still be refused. */
  #write(bytes: Buffer): void {
    if (this.#response.destroyed || this.#response.writableEnded) return;
    if (!this.#response.headersSent)
      this.#response.writeHead(200, {
        'Content-Type': 'application/x-git-receive-pack-result',
        'Cache-Control': 'no-cache',
      });
    this.#response.write(bytes);
  }
}
