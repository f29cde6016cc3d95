import { formatMiB } from './wire-body.ts';

/**
 * What to tell about a failed fetch. git's own words stay inside: they hold addresses, paths, and whatever the other
 * server wrote.
 */
export function explainFetchFailure(
  stderr: string,
  facts: {
    timedOut: boolean;
    tooLarge: boolean;
    hasToken: boolean;
    packBytes: number;
    timeoutMs: number;
    /** It was asked for its branches only. */
    isListing: boolean;
  },
): string {
  const seconds = Math.round(facts.timeoutMs / 1000);
  if (facts.timedOut)
    return facts.isListing
      ? `The server took longer than ${seconds} seconds to say what it has; try again later.`
      : `The fetch took longer than ${seconds} seconds.`;
  if (facts.tooLarge) return `The repository is larger than ${formatMiB(facts.packBytes)}.`;
  const flaw = /object [0-9a-f]{40}: (\w+):/.exec(stderr)?.[1];
  if (flaw) return `The repository holds an object that is refused (${flaw}).`;
  const known = messages.find(([pattern]) => pattern.test(stderr))?.[1];
  if (known === undefined) return 'The repository cannot be fetched.';
  return known(facts);
}

type Facts = { hasToken: boolean };

const messages: [RegExp, (facts: Facts) => string][] = [
  [
    /unable to update url base from redirection|error: 30[0-9]|redirect/i,
    () => 'The server answers with a redirect; use the final address as the git URL.',
  ],
  [
    /Authentication failed|could not read Username|terminal prompts disabled|error: 401/,
    (facts) =>
      facts.hasToken
        ? 'The server refused the credentials of this repository.'
        : 'The server asks for credentials, or there is no such repository.',
  ],
  [/error: 403/, () => 'The server does not allow access to this repository.'],
  [/error: 404|not found/i, () => 'There is no such repository at this address.'],
  [/certificate/i, () => 'The secure connection failed: the certificate of the server is not trusted.'],
  [/SSL|TLS|gnutls/i, () => 'The secure connection failed, or the server broke it off; it may speak no TLS.'],
  [/Could not resolve host/, () => 'The host cannot be found.'],
  [/Failed to connect|Couldn't connect|Connection refused|timed out/i, () => 'The server cannot be reached.'],
  [
    /Operation too slow|transfer closed|early EOF|unexpected disconnect/i,
    () => 'The server sent too slowly, or ended the connection in the middle.',
  ],
  [/couldn't find remote ref|not our ref/, () => 'The repository has no such branch, tag or commit.'],
];
