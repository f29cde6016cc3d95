/** Calls back once nothing was heard for a while. */
export class Silence {
  readonly #timer: NodeJS.Timeout;

  constructor(ms: number, onSilence: () => void) {
    this.#timer = setTimeout(onSilence, ms).unref();
  }

  heard = (): void => void this.#timer.refresh();

  end = (): void => clearTimeout(this.#timer);
}
