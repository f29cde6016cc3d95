/** A place on the network that a sandbox asks for: a lower-case host name without the root's dot, or an IP literal. */
export interface EgressTarget {
  host: string;
  port: number;
}

/** Why something did not go out. Closed: the CLI and the documentation have a line for each. */
export const egressReasons = [
  'egress_off',
  'not_listed',
  'denied',
  'address_literal',
  'private_address',
  'name_not_found',
  'connect_failed',
  'name_mismatch',
  'name_missing',
  'not_tls',
  'bad_request',
  'too_many_connections',
  'timeout',
  'placeholder_to_wrong_host',
  'placeholder_not_replaced',
  'upstream_certificate',
] as const;

export type EgressReason = (typeof egressReasons)[number];

/** `message` is told to the program inside and to the owner: one sentence, without any value of a secret. */
export class EgressRefused extends Error {
  readonly reason: EgressReason;

  constructor(reason: EgressReason, message: string) {
    super(message);
    this.name = 'EgressRefused';
    this.reason = reason;
  }
}
