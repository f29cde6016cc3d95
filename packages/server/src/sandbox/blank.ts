import type { Writable } from 'node:stream';
import { isDeepStrictEqual } from 'node:util';
import { launchData } from '../domain/launch-data.ts';
import type { BlankSandbox, BlankSpec, RunningSandbox, SandboxSpec } from '../domain/ports/sandbox.ts';
import { refuseBadSpec } from './launch-args.ts';
import type { LocalSandbox } from './running.ts';

export interface BlankParts {
  spec: BlankSpec;
  sandbox: LocalSandbox;
  /** Of its first process. */
  input: Writable;
  /** Gives it the volume and the limits of an agent, and keeps it as running. */
  become(spec: SandboxSpec): Promise<void>;
  /** Why it was not claimed, for the log. */
  onFailure(error: unknown): void;
}

/** A sandbox that waits for an agent. */
export class Blank implements BlankSandbox {
  readonly id: string;
  readonly ended: Promise<void>;
  readonly #parts: BlankParts;
  #isTaken = false;

  constructor(parts: BlankParts) {
    this.#parts = parts;
    this.id = parts.spec.id;
    this.ended = parts.sandbox.exited.then(() => undefined);
    parts.input.on('error', () => undefined);
  }

  async claim(spec: SandboxSpec): Promise<RunningSandbox | null> {
    if (this.#isTaken) return null;
    this.#isTaken = true;
    const { sandbox, input, become, onFailure } = this.#parts;
    try {
      if (!this.#fits(spec)) throw new Error('It was made for something else.');
      refuseBadSpec(spec);
      await become(spec);
    } catch (error) {
      onFailure(error);
      await sandbox.kill();
      return null;
    }
    // Only now anything of the agent is in it.
    const data = launchData(spec.command, spec.env);
    if (spec.detached) input.end(data);
    else input.write(data);
    return sandbox;
  }

  async discard(): Promise<void> {
    this.#isTaken = true;
    await this.#parts.sandbox.kill();
  }

  #fits(spec: SandboxSpec): boolean {
    const { id, runDir, binds, limits, detached } = this.#parts.spec;
    const made = { id, runDir, binds, limits, detached, transparentEgress: false };
    return (Object.keys(made) as (keyof typeof made)[]).every((key) =>
      isDeepStrictEqual(made[key], spec[key]),
    );
  }
}
