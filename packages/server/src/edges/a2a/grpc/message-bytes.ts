import type { Flight } from '../../../domain/flight.ts';
import { limits } from '../../../domain/limits.ts';
import type { KeyOwner, RoomLimits } from '../../../domain/shared-room.ts';
import { SharedRoom } from '../../../domain/shared-room.ts';

/** The bytes of one message, until its call is answered. */
export interface MessageHold {
  /** Throws `rate_limited` and `unavailable`, with when to try again, if these are too many. */
  add(bytes: number): void;
  /** They are held no more. May be called again. */
  drop(): void;
}

/**
 * The bytes of messages in this process. Large ones count with all bodies. Small ones have a bound of their own, since a connection has many
 * calls, and since others' large bodies are no reason to refuse them.
 */
export class MessageBytes {
  readonly #flight: Flight;
  readonly #small: SharedRoom;

  constructor(flight: Flight, ofSmall: RoomLimits = limits.a2aGrpcSmallMessages) {
    this.#flight = flight;
    this.#small = new SharedRoom(ofSmall, 'small messages');
  }

  /** Of those that are small. */
  get smallBytes(): number {
    return this.#small.all;
  }

  open(owner: KeyOwner): MessageHold {
    const body = this.#flight.open(owner.orgId);
    let read = 0;
    let small = 0;
    let isOver = false;
    const leaveSmall = (): void => {
      this.#small.giveBack(owner, small);
      small = 0;
    };
    return {
      add: (bytes) => {
        if (isOver) return;
        const isSmall = read + bytes <= limits.bodiesInFlight.smallBytes;
        if (isSmall) {
          this.#small.take(owner, bytes);
          small += bytes;
        }
        body.add(bytes);
        read += bytes;
        if (!isSmall) leaveSmall();
      },
      drop: () => {
        isOver = true;
        body.drop();
        leaveSmall();
      },
    };
  }
}
