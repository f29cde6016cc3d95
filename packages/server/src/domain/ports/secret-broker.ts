/** A secret whose value only its hosts get, without that value. */
export interface BrokeredName {
  key: string;
  /** As `readHosts` gave them (domain/hosts.ts). */
  hosts: string[];
}

export interface BrokeredSecret extends BrokeredName {
  /** The bytes of its UTF-8 text. */
  value: Buffer;
}

/** Whose sandbox it is. */
export interface BrokerOwner {
  agentId: string;
  sandboxId: string;
}

/** Keeps values out of sandboxes: inside stands a placeholder, and the value is put in on the way to its hosts. */
export interface SecretBroker {
  /**
   * Before the start of a sandbox whose row exists. Writes the files of its own certificate authority into `runDir`, and
   * gives what its environment needs; both are empty when the agent has no brokered secrets.
   */
  open(owner: BrokerOwner, runDir: string): Promise<Record<string, string>>;
  /** After a restart of the service, for a sandbox that lived on: its placeholders and authority stay as they were. */
  adopt(owner: BrokerOwner): Promise<void>;
  /** The sandbox has ended. */
  forget(sandboxId: string): Promise<void>;
}

/** What a broker has to know again after a restart; sealed, since the key of the sandbox's authority comes from it. */
export interface BrokerRecords {
  save(owner: BrokerOwner, state: Buffer): Promise<void>;
  load(sandboxId: string): Promise<Buffer | null>;
  remove(sandboxId: string): Promise<void>;
}
