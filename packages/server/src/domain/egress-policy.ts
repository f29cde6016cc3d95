import { contains, parseAddress, type Address } from './address-ranges.ts';
import { egressPresets } from './egress-presets.ts';
import {
  matchesTarget,
  parseDenyRule,
  parseEgressRule,
  type EgressRule,
  type EgressTarget,
} from './egress-rules.ts';

export type { EgressTarget } from './egress-rules.ts';

export const egressModes = ['none', 'list', 'open'] as const;

/** `none`: nothing goes out. `list`: what is allowed. `open`: every public host. What is denied never does. */
export type EgressMode = (typeof egressModes)[number];

/** Rules as they were written (egress-rules.ts); presets by name (egress-presets.ts). */
export interface EgressPolicy {
  mode: EgressMode;
  allow: string[];
  deny: string[];
  presets: string[];
  /**
   * Whether programs that know no proxy are led to it, from the next start of the sandbox on; only where the driver can
   * (`SandboxCapabilities.transparentEgress`).
   */
  transparent: boolean;
}

export const noEgress: Readonly<EgressPolicy> = {
  mode: 'none',
  allow: [],
  deny: [],
  presets: [],
  transparent: false,
};

/** Why something did not go out. Closed: the documentation has a line for each. */
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
  'name_hidden',
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

/** `unread`: bytes of any protocol may pass, whatever name they hold. `looseTls`: TLS may hide the name of its host. */
export interface EgressAllowed {
  unread: 'any' | 'unless_tls' | 'never';
  mayHideName: boolean;
}

export interface CompiledEgressPolicy {
  /** Throws EgressRefused. Names only: addresses are asked for when they are known. */
  check(target: EgressTarget): EgressAllowed;
  /** Whether a deny rule holds for the address that a name was resolved to. */
  deniesAddress(address: Address, port: number): boolean;
}

/** Rules that cannot be read are left out of `allow` and refuse everything in `deny`: they were checked when written. */
export function compileEgressPolicy(policy: EgressPolicy): CompiledEgressPolicy {
  const deny = policy.deny.map(parseDenyRule);
  const allow = [...policy.allow, ...policy.presets.flatMap((name) => egressPresets[name]?.hosts ?? [])]
    .map(parseEgressRule)
    .filter((rule) => rule !== null);
  const isUnclear = deny.includes(null);
  const denyRules = deny.filter((rule) => rule !== null);

  return {
    check(target) {
      const { host, port } = target;
      const name = `${bracketed(host)}:${port}`;
      if (policy.mode === 'none') {
        throw new EgressRefused('egress_off', `This agent may not use the network; ${name} was not reached.`);
      }
      if (isUnclear || denyRules.some((rule) => matchesTarget(rule, target))) {
        throw new EgressRefused('denied', `${name} is on the list of hosts that this agent may not reach.`);
      }
      const rules = allow.filter((rule) => matchesTarget(rule, target));
      if (rules.some((rule) => rule.isUnread)) return { unread: 'any', mayHideName: true };
      const isOpen = policy.mode === 'open';
      if (rules.length === 0 && parseAddress(host) !== null) {
        throw new EgressRefused(
          'address_literal',
          `${name} is an address; only listed addresses are reached.`,
        );
      }
      if (rules.length === 0 && !isOpen) {
        throw new EgressRefused(
          'not_listed',
          `${name} is not on the list of hosts that this agent may reach.`,
        );
      }
      return { unread: isOpen && port !== 443 ? 'unless_tls' : 'never', mayHideName: isOpen };
    },
    deniesAddress: (address, port) =>
      isUnclear || denyRules.some((rule) => matchesAddress(rule, address, port)),
  };
}

function matchesAddress(rule: EgressRule, address: Address, port: number): boolean {
  return (
    rule.kind === 'network' &&
    (rule.ports === 'all' || rule.ports.includes(port)) &&
    contains(rule.network, address)
  );
}

const maxTransparentPorts = 32;

/** The ports that transparent mode leads on: the web's, and those that the owner's rules name. */
export function transparentPorts(policy: EgressPolicy): number[] {
  const ports = policy.allow.flatMap((text) => {
    const rule = parseEgressRule(text);
    return rule && rule.ports !== 'all' ? rule.ports : [];
  });
  return [...new Set([80, 443, ...ports])].slice(0, maxTransparentPorts);
}

/** What the owner can type to let it through; null when nothing on this agent would. */
export function egressRemedy(agentId: string, reason: EgressReason, target: EgressTarget): string | null {
  const rule = `${bracketed(target.host)}:${target.port}`;
  switch (reason) {
    case 'egress_off':
      return `berth egress mode ${agentId} list`;
    case 'not_listed':
    case 'address_literal':
      return `berth egress allow ${agentId} ${rule}`;
    case 'denied':
      return `berth egress show ${agentId}`;
    case 'name_missing':
    case 'name_hidden':
    case 'not_tls':
      return `berth egress allow ${agentId} ${rule}/tcp`;
    case 'placeholder_to_wrong_host':
    case 'placeholder_not_replaced':
      return `berth secrets list ${agentId}`;
    case 'upstream_certificate':
    case 'private_address':
    case 'name_not_found':
    case 'connect_failed':
    case 'name_mismatch':
    case 'bad_request':
    case 'too_many_connections':
    case 'timeout':
      return null;
  }
}

export function bracketed(host: string): string {
  return host.includes(':') ? `[${host}]` : host;
}
