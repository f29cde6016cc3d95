import { closeSync, openSync, readSync, statSync } from 'node:fs';

const SECTOR_BYTES = 512;
/** The seventh number of a device's statistics (Documentation/block/stat): sectors written. */
const WRITTEN = 6;
/** At once, after a time without writes: an installation or a checkout is not to be slowed down. */
const BURST_SECONDS = 8;
/** So long it stands still at most before it may go on for a moment, and answer; the rest is forgiven. */
const REST_SECONDS = 2;

/**
 * How much an agent has written to the device of its own disk, against what it may write in a second. One that wrote more is to stand
 * still for a while: else it takes all that the disk of the host can do, and each commit of the service waits behind it. Nothing is held
 * back in the kernel, since others would wait for that too (docs/decisions/0395).
 */
export class DiskPace {
  private readonly bytesPerSecond: number;
  private readonly file: number;
  private readonly text = Buffer.alloc(512);
  private written: number;
  private credit: number;
  private lookedMs = performance.now();

  /** `file`: the open statistics of the device; it is closed by `close`. */
  constructor(file: number, bytesPerSecond: number) {
    this.file = file;
    this.bytesPerSecond = bytesPerSecond;
    this.credit = bytesPerSecond * BURST_SECONDS;
    this.written = this.writtenBytes();
  }

  /** Milliseconds that it is to stand still from now on; 0 when it keeps its pace. */
  look(): number {
    const nowMs = performance.now();
    const written = this.writtenBytes();
    const gained = ((nowMs - this.lookedMs) / 1000) * this.bytesPerSecond;
    const credit = this.credit + gained - (written - this.written);
    const [least, most] = [-REST_SECONDS * this.bytesPerSecond, BURST_SECONDS * this.bytesPerSecond];
    this.credit = Math.max(least, Math.min(most, credit));
    this.written = written;
    this.lookedMs = nowMs;
    return Math.max(0, (-this.credit / this.bytesPerSecond) * 1000);
  }

  close(): void {
    closeSync(this.file);
  }

  private writtenBytes(): number {
    const length = readSync(this.file, this.text, 0, this.text.length, 0);
    const numbers = this.text.toString('latin1', 0, length).trim().split(/\s+/);
    return Number(numbers[WRITTEN]) * SECTOR_BYTES;
  }
}

/** Of the disk that is mounted there. Null: it may write as it comes (0), or its device tells nothing. */
export function diskPace(volumeDir: string, bytesPerSecond: number): DiskPace | null {
  if (bytesPerSecond === 0) return null;
  const { dev } = statSync(volumeDir);
  // makedev(3) says how the two lie in the number.
  const major = (dev >>> 8) & 0xfff;
  const minor = (dev & 0xff) | ((dev >>> 12) & 0xfff00);
  try {
    return new DiskPace(openSync(`/sys/dev/block/${major}:${minor}/stat`, 'r'), bytesPerSecond);
  } catch {
    return null;
  }
}
