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

/** What the hosts of an agent's secrets may tell. */
export interface BrokeredValues {
  secrets: BrokeredSecret[];
  /** What secrets were before they were rotated, deleted or given other hosts, as long as that is searched for. */
  earlier: BrokeredSecret[];
}

/** Whose sandbox it is. */
export interface BrokerOwner {
  agentId: string;
  sandboxId: string;
}

/** Keeps values out of sandboxes: inside stands a placeholder, and the value is put in on the way to its hosts. */
export interface SecretBroker {
  /**
   * Before the start of a sandbox whose row exists: writes the files of its own certificate authority into `runDir`, and
   * gives what its environment needs; nothing when the agent has no brokered secrets and had none lately. For a sandbox that lived on while
   * the service was restarted, its placeholders and authority stay as they were.
   */
  open(owner: BrokerOwner, runDir: string): Promise<Record<string, string>>;
  close(sandboxId: string): void;
}

/** What a broker has to know again after a restart; sealed, since the key of the sandbox's authority comes from it. */
export interface BrokerRecords {
  /** It goes with the end of the sandbox. */
  save(owner: BrokerOwner, state: Buffer): Promise<void>;
  load(sandboxId: string): Promise<{ hasStarted: boolean; state: Buffer | null }>;
}
