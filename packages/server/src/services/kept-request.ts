import type { ChannelKind, ChannelSetup, InboundRequest } from '../domain/ports/channel.ts';
import type { StoredRequest } from '../store/inbound-events.ts';

/** Shorter texts stand in headers by chance; the kinds that send a secret in a header of any name ask for as much. */
const shortestSecretChars = 8;
const secretHeaders =
  /^(authorization|cookie|x-gitlab-token|x-telegram-bot-api-secret-token)$|signature|secret|token/i;

/** Without what proves the sender: a secret of the channel is kept nowhere but sealed, whatever header it comes in. */
export function keptRequest(
  request: InboundRequest,
  kind: ChannelKind,
  { settings, credentials, previousSecret }: ChannelSetup,
): StoredRequest {
  const secrets = [...Object.values(credentials), previousSecret ?? ''].filter(
    (secret) => secret.length >= shortestSecretChars,
  );
  const isRead = new Set(kind.headersRead?.(settings));
  const isKept = (name: string, value: string) =>
    (isRead.has(name) || !secretHeaders.test(name)) && !secrets.some((secret) => value.includes(secret));
  const headers = [...request.headers].map(([name, value]): [string, string] => [
    name,
    isKept(name, value) ? value : '-',
  ]);
  return { method: request.method, url: request.url, headers };
}
