import { DomainError } from '../../../domain/errors.ts';
import { limits } from '../../../domain/limits.ts';
import type { KeyOwner } from '../../../domain/shared-room.ts';
import { SharedRoom } from '../../../domain/shared-room.ts';
import { Turns } from '../../../domain/turns.ts';

interface Waiting {
  start(): void;
  /** In place of a time, which nobody knows: what may be made of it, as a part of the largest message. */
  leftMs: number;
}

export interface PlaceLimits {
  total: number;
  /** Of those that wait, the most of an organisation; a key has as many as are left of them. */
  waitingOfOrg: number;
  /** After so long, whoever waits is let go. */
  waitMs: number;
}

/**
 * Places for what is unpacked at once. Whoever finds none waits: organisations have turns, and in each its keys, so that nobody waits for all
 * of another's. A turn counts as what may be made of the message, since what is made of it is known only afterwards: of those who are owed the
 * same a little one comes first.
 */
export class Places {
  readonly #most: PlaceLimits;
  readonly #waiting = new Turns<Waiting>();
  readonly #room: SharedRoom;
  #taken = 0;

  constructor(most: PlaceLimits) {
    this.#most = most;
    const waiting = { ofOrg: most.waitingOfOrg, ofAll: Infinity };
    this.#room = new SharedRoom(waiting, 'compressed messages');
  }

  /** How many are in use. */
  get taken(): number {
    return this.#taken;
  }

  get waiting(): number {
    return this.#waiting.size;
  }

  /**
   * For a message of which `sentBytes` have come. Resolves with the function that gives the place back. Rejects with the reason of `gone`; and, with when to try again, with `rate_limited` when
   * too many wait already, and with `unavailable` when the wait was too long.
   */
  async enter(owner: KeyOwner, sentBytes: number, gone: AbortSignal): Promise<() => void> {
    gone.throwIfAborted();
    if (this.#taken < this.#most.total) return this.#take();
    this.#room.take(owner, 1);
    return new Promise((resolve, reject) => {
      const leave = (): void => {
        gone.removeEventListener('abort', letGo);
        clearTimeout(timer);
        this.#room.giveBack(owner, 1);
      };
      const start = (): void => {
        leave();
        resolve(this.#take());
      };
      const turn = { group: owner.orgId, member: owner.keyId, piece: { start, leftMs: mostMade(sentBytes) } };
      const end = (reason: unknown): void => {
        leave();
        this.#remove(turn);
        reject(reason);
      };
      const letGo = (): void => end(gone.reason);
      const timer = setTimeout(() => end(tooLong()), this.#most.waitMs);
      gone.addEventListener('abort', letGo, { once: true });
      this.#waiting.add(turn);
    });
  }

  #take(): () => void {
    this.#taken += 1;
    return () => {
      this.#taken -= 1;
      this.#startNext();
    };
  }

  #startNext(): void {
    const turn = this.#waiting.next();
    if (turn === null) return;
    this.#waiting.had(turn, turn.piece.leftMs);
    this.#remove(turn);
    turn.piece.start();
  }

  #remove(turn: Parameters<Turns<Waiting>['remove']>[0]): void {
    this.#waiting.remove(turn);
    if (this.#waiting.size === 0) this.#waiting.forget();
  }
}

/** Deflate makes no more of a byte. */
const mostOfByte = 1_032;

/** As a part of the largest message; nothing is so small that many of it cost nothing. */
function mostMade(sentBytes: number): number {
  const { a2aBodyBytes: largest, bodiesInFlight } = limits;
  return Math.min(Math.max(sentBytes * mostOfByte, bodiesInFlight.smallBytes), largest) / largest;
}

function tooLong(): DomainError {
  const text = 'The message waited too long to be unpacked; try again, or send it uncompressed.';
  return new DomainError('unavailable', text, { retryAfterSeconds: 1 });
}
