/** Where the key-encryption keys lie. The current one is first; those after it only open what they once sealed. */
export interface KeySource {
  /** For messages: the file's or the variable's name. */
  readonly name: string;
  /** 32 bytes each; empty when there is none yet. Throws with a message that says what to do when it may not be used. */
  read(): Buffer[];
  /** Another text whenever `read` would answer something else. Cheap. */
  stamp(): string;
  /** Puts the first key there, unless another process was faster; durable when it returns. */
  create(key: Buffer): void;
  /** Replaces all, whole or not at all, durable when it returns; null when the keys cannot be written from here. */
  replace: ((keys: Buffer[]) => void) | null;
}
