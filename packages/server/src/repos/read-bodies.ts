import type { IncomingMessage } from 'node:http';
import { addTo } from '../domain/counts.ts';
import { GrowingBytes } from '../domain/growing-bytes.ts';
import { GateFull } from '../domain/key-gate.ts';
import type { GitTarget } from '../domain/ports/repos.ts';
import { within } from '../domain/time-limit.ts';
import type { RepoLimits } from './repo-limits.ts';
import { chunksOf, formatMiB, openBody, packetCheck, WireError } from './wire-body.ts';

/** A body up to here is taken always: there are not more of them than connections. */
const smallBytes = 64 * 1024;

/**
 * What clients ask in clones and fetches, kept until it is whole: only then does a request take a place, so that nobody
 * holds one by sending slowly.
 */
export class ReadBodies {
  readonly #limits: RepoLimits;
  #held = 0;
  /** Of each agent, and of each organisation; their ids are never the same. */
  readonly #heldOf = new Map<string, number>();

  constructor(limits: RepoLimits) {
    this.#limits = limits;
  }

  /** The body after decompression, made of whole packets. Throws WireError and GateFull. To be called when git has it: `drop`. */
  async take(target: GitTarget, request: IncomingMessage): Promise<{ bytes: Buffer; drop: () => void }> {
    const { readBodyTimeoutMs: limitMs } = this.#limits;
    let held = 0;
    let isOver = false;
    const drop = (): void => {
      isOver = true;
      this.#count(target, -held);
      held = 0;
    };
    const read = async (): Promise<Buffer> => {
      const check = packetCheck();
      const body = new GrowingBytes(this.#limits.readBodyBytes);
      for await (const piece of chunksOf(openBody(request), this.#limits.idleTimeoutMs)) {
        if (isOver) break;
        held += piece.length;
        this.#count(target, piece.length);
        this.#requireRoom(target, held);
        check.take(piece);
        body.add(piece);
      }
      check.end();
      return body.whole();
    };
    try {
      const bytes = await within(limitMs, read(), () => {
        throw new WireError(408, `The request did not come within ${limitMs / 1000} seconds; try again.`);
      });
      return { bytes, drop };
    } catch (error) {
      drop();
      throw error;
    }
  }

  #requireRoom({ agentId, orgId }: GitTarget, bytes: number): void {
    const { readBodyBytes: most, readBodiesBytes: all } = this.#limits;
    if (bytes > most) throw new WireError(413, `The request is larger than ${formatMiB(most)}.`);
    if (bytes <= smallBytes) return;
    const isFull =
      this.#held > all || this.#heldOf.get(agentId)! > all / 4 || this.#heldOf.get(orgId)! > (all * 3) / 4;
    if (isFull) throw new GateFull();
  }

  #count({ agentId, orgId }: GitTarget, change: number): void {
    this.#held += change;
    for (const id of new Set([agentId, orgId])) addTo(this.#heldOf, id, change);
  }
}
