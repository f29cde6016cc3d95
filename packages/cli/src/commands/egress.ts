import { everyItem, type Egress, type EgressPut } from '@berth/sdk';
import { UsageError, type Command, type Context } from '../command.ts';
import { findAgent } from '../find-agent.ts';
import { printOne, printTable } from '../print.ts';

const modes = ['none', 'list', 'open'] as const;
const anyNumber: [number, number] = [2, 1_000];

function show(context: Context, egress: Egress): void {
  const lines = (rules: string[]) => (rules.length > 0 ? rules.join(' ') : '-');
  const transparent = egress.transparent
    ? egress.transparentPossible
      ? 'yes'
      : 'wanted, but this host cannot: proxy variables only'
    : 'no';
  printOne(context, egress, [
    ['mode', egress.isDefault ? `${egress.mode} (default of the installation)` : egress.mode],
    ['presets', lines(egress.presets)],
    ['allow', lines(egress.allow)],
    ['deny', lines(egress.deny)],
    ['transparent', transparent],
  ]);
}

/** Reads the policy, changes it and writes it: one caller at a time, as people at a terminal are. */
async function change(context: Context, nameOrId: string, edit: (policy: Required<EgressPut>) => void) {
  const { id } = await findAgent(context, nameOrId);
  const { mode, allow, deny, presets, transparent } = await context.client.egress.get(id);
  const policy = { mode, allow: [...allow], deny: [...deny], presets: [...presets], transparent };
  edit(policy);
  show(context, await context.client.egress.set(id, policy));
}

function add(list: string[], rules: string[]): void {
  for (const rule of rules) if (!list.includes(rule)) list.push(rule);
}

function remove(list: string[], rules: string[]): void {
  for (const rule of rules) if (list.includes(rule)) list.splice(list.indexOf(rule), 1);
}

/** Those of the service, which a test compares. Any other word is a host, as a machine of one's own network may be named. */
export const presetNames = [
  ...['npm', 'pypi', 'debian', 'ubuntu', 'alpine', 'crates', 'go', 'rubygems', 'maven', 'nuget', 'packagist'],
  ...['node', 'github', 'gitlab'],
];

function split(given: string[]): { rules: string[]; presets: string[] } {
  const isPreset = (text: string) => presetNames.includes(text);
  return { rules: given.filter((text) => !isPreset(text)), presets: given.filter(isPreset) };
}

/** Whether one letter too many, too few, another one, or two that changed places, makes one word of the other. */
function isOneEditAway(word: string, other: string): boolean {
  let start = 0;
  while (start < word.length && word[start] === other[start]) start += 1;
  const [rest, otherRest] = [word.slice(start), other.slice(start)];
  const swapped = `${rest[1]}${rest[0]}${rest.slice(2)}`;
  return (
    rest.slice(1) === otherRest.slice(1) ||
    rest.slice(1) === otherRest ||
    rest === otherRest.slice(1) ||
    swapped === otherRest
  );
}

/** The preset that was meant, as far as one can tell; words of two letters are too close to too much. */
function presetLike(word: string): string | undefined {
  const lower = word.toLowerCase();
  return presetNames.find((name) => name === lower || (word.length > 2 && isOneEditAway(lower, name)));
}

/** A misspelt preset would be stored as a host that nobody reaches. What is listed already can be moved. Throws UsageError. */
function refuseMisspelt({ allow, deny }: Required<EgressPut>, rules: string[], port: string): void {
  for (const word of rules) {
    const preset =
      /^[\w-]+$/.test(word) && ![...allow, ...deny].includes(word) ? presetLike(word) : undefined;
    if (preset !== undefined)
      throw new UsageError(
        `${word}: this is no preset; ${preset} is one. If it is a host of that name, say so with a port: ${word}:${port}`,
      );
  }
}

/** What would change nothing must not look as if the hosts were denied. Throws UsageError. */
function refuseUnlisted({ mode, presets: listed }: Required<EgressPut>, presets: string[]): void {
  const idle = presets.filter((name) => !listed.includes(name));
  if (idle.length === 0) return;
  const why =
    mode === 'open' ? 'in mode open every host is allowed without it' : 'it is not among those of this agent';
  throw new UsageError(
    `${idle.join(', ')}: to deny a preset takes it off the allowed ones, and ${why}; name its hosts to deny them`,
  );
}

/** A rule's host, or `*.` and the hosts below it, and its port where it has one, as the service reads them. */
function place(rule: string): { host: string; port: string | undefined } {
  const [, host = '', port] = /^(.*?)(?::(\d+|\*))?(?:\/tcp)?$/.exec(rule.toLowerCase())!;
  // The colons of an IPv6 address stand in brackets.
  return { host: host.replace(/\.$/, ''), port: port?.replace(/^0+/, '') };
}

/** Whether all that a rule would allow is denied by the other one, as far as names tell: ranges of addresses are not compared. */
function isDeniedBy(rule: string, denied: string): boolean {
  const [wanted, kept] = [place(rule), place(denied)];
  const isBelow = kept.host.startsWith('*.') && wanted.host.endsWith(kept.host.slice(1));
  if (wanted.host !== kept.host && !isBelow) return false;
  return kept.port === undefined || kept.port === '*' || kept.port === wanted.port;
}

/** What is denied stays so, and must not look as if it were allowed. Throws UsageError. */
function refuseDenied(deny: string[], rules: string[]): void {
  for (const rule of rules) {
    const denied = deny.find((other) => isDeniedBy(rule, other));
    if (denied === undefined) continue;
    throw new UsageError(
      `${rule}: ${denied} is denied, which wins; berth egress allow takes that off the denied ones when it is named as it stands there`,
    );
  }
}

export const egressCommands: Command[] = [
  {
    name: 'egress show',
    usage: '<agent>',
    summary: 'Show what an agent may reach on the network',
    positionals: [1, 1],
    async run(context, [agent]) {
      show(context, await context.client.egress.get((await findAgent(context, agent!)).id));
    },
  },
  {
    name: 'egress mode',
    usage: '<agent> none|list|open',
    summary: 'Nothing, what is listed, or every public host',
    positionals: [2, 2],
    run: (context, [agent, given]) => {
      const mode = modes.find((name) => name === given);
      if (mode === undefined) throw new UsageError(`the mode must be one of ${modes.join(', ')}`);
      return change(context, agent!, (policy) => void (policy.mode = mode));
    },
  },
  {
    name: 'egress allow',
    usage: '<agent> <host[:port][/tcp] | preset>...',
    summary:
      'Let an agent reach hosts, such as registry.example:8443, *.example.org or npm; without a port, on 80 and 443',
    positionals: anyNumber,
    run: (context, [agent, ...given]) =>
      change(context, agent!, (policy) => {
        const { rules, presets } = split(given);
        refuseMisspelt(policy, rules, '443');
        add(policy.allow, rules);
        add(policy.presets, presets);
        remove(policy.deny, rules);
        refuseDenied(policy.deny, rules);
      }),
  },
  {
    name: 'egress deny',
    usage: '<agent> <host[:port] | preset>...',
    summary:
      'Keep an agent from hosts, whatever else is allowed; without a port, on every port. A preset is taken off the allowed ones',
    positionals: anyNumber,
    run: (context, [agent, ...given]) =>
      change(context, agent!, (policy) => {
        const { rules, presets } = split(given);
        refuseMisspelt(policy, rules, '*');
        refuseUnlisted(policy, presets);
        if (policy.mode === 'open' && presets.length > 0)
          context.note(
            `${presets.join(', ')}: taken off, but in mode open every host stays allowed; name its hosts to deny them\n`,
          );
        remove(policy.allow, rules);
        remove(policy.presets, presets);
        add(policy.deny, rules);
      }),
  },
  {
    name: 'egress transparent',
    usage: '<agent> on|off',
    summary: 'Lead programs that know no proxy to it too, from the next start of the sandbox on',
    positionals: [2, 2],
    run: (context, [agent, given]) => {
      if (given !== 'on' && given !== 'off') throw new UsageError('say on or off');
      return change(context, agent!, (policy) => void (policy.transparent = given === 'on'));
    },
  },
  {
    name: 'egress reset',
    usage: '<agent>',
    summary: "Return to the installation's default",
    positionals: [1, 1],
    async run(context, [agent]) {
      const { id } = await findAgent(context, agent!);
      await context.client.egress.reset(id);
      show(context, await context.client.egress.get(id));
    },
  },
  {
    name: 'egress refusals',
    usage: '<agent>',
    summary: 'List connections that did not go out, and what would let them through',
    positionals: [1, 1],
    async run(context, [agent]) {
      const { id } = await findAgent(context, agent!);
      const refusals = await Array.fromAsync(everyItem((query) => context.client.egress.refusals(id, query)));
      const rows = refusals.map(({ host, port, reason, count, lastAt, remedy }) => [
        `${host}:${port}`,
        reason,
        count,
        lastAt,
        remedy,
      ]);
      printTable(context, refusals, ['host', 'reason', 'count', 'last', 'remedy'], rows);
    },
  },
  {
    name: 'egress traffic',
    usage: '<agent>',
    summary: 'Show the bytes by host of the last 30 days',
    positionals: [1, 1],
    async run(context, [agent]) {
      const { hosts } = await context.client.egress.traffic((await findAgent(context, agent!)).id);
      const rows = hosts.map((host) => [host.host, host.sentBytes, host.receivedBytes, host.connections]);
      printTable(context, hosts, ['host', 'sent', 'received', 'connections'], rows);
    },
  },
];
