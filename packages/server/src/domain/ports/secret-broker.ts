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
