import type { RepoLimits } from './repo-limits.ts';

type Config = readonly (readonly [string, string])[];

/** Flaws that old, honest repositories have and that harm nobody (the list other hosts let through, too). */
const harmlessFlaws = ['zeroPaddedFilemode', 'missingSpaceBeforeDate', 'badTimezone'];

/** Object checks for what comes in: a tree with `.git`, `..` or doubled names is refused with its whole pack. */
export function objectChecks(section: 'receive' | 'fetch'): Config {
  return [
    [`${section}.fsckObjects`, 'true'],
    ...harmlessFlaws.map((flaw) => [`${section}.fsck.${flaw}`, 'ignore'] as const),
  ];
}

/** Our own refs are not the client's business, and replaced objects would show it another tree than we deploy. */
const hidden: Config = [
  ['transfer.hideRefs', 'refs/berth'],
  ['transfer.hideRefs', 'refs/replace'],
];

export function uploadConfig(): Config {
  return [...hidden, ['uploadpack.allowFilter', 'true'], ['uploadpack.keepAlive', '5']];
}

export function receiveConfig(limits: RepoLimits): Config {
  return [
    ...hidden,
    ...objectChecks('receive'),
    ['receive.maxInputSize', String(limits.packBytes)],
    ['receive.autogc', 'false'],
    ['receive.keepAlive', '5'],
    ['receive.denyDeleteCurrent', 'refuse'],
    ['receive.denyNonFastForwards', 'false'],
    ['receive.shallowUpdate', 'false'],
  ];
}
