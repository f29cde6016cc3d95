import type {
  ChannelKind,
  ChannelSetup,
  CredentialSpec,
  SettingSpec,
  SettingValue,
} from '../domain/ports/channel.ts';

export const required = (name: string, description: string): CredentialSpec => ({
  name,
  required: true,
  description,
});

export const optional = (name: string, description: string): CredentialSpec => ({
  name,
  required: false,
  description,
});

export function setting(
  name: string,
  type: SettingSpec['type'],
  description: string,
  fallback: SettingValue | null = null,
): SettingSpec {
  return { name, type, required: false, default: fallback, description };
}

export function requiredSetting(name: string, type: SettingSpec['type'], description: string): SettingSpec {
  return { ...setting(name, type, description), required: true };
}

export const allowBots = setting(
  'allowBots',
  'flag',
  'Whether messages of other bots are answered. Two bots that answer each other stop at maxAnswersPerSender alone, so leave it off.',
  false,
);

/** For kinds with `allowBots`; people are not counted. */
export const maxAnswersPerBot = setting(
  'maxAnswersPerSender',
  'count',
  'With allowBots: answers to one other bot in an hour at most, so that two that answer each other do not go on for ever.',
  60,
);

type Settings = ChannelSetup['settings'];

export function textOf(settings: Settings, name: string): string | null {
  const value = settings[name];
  return typeof value === 'string' && value !== '' ? value : null;
}

/** An empty list allows everything: it was not set. */
export function listOf(settings: Settings, name: string): string[] {
  const value = settings[name];
  return Array.isArray(value) ? value : [];
}

export function isOn(settings: Settings, name: string): boolean {
  return settings[name] === true;
}

export function allows(settings: Settings, name: string, value: string | null): boolean {
  const list = listOf(settings, name);
  return list.length === 0 || (value !== null && list.includes(value));
}

/** Of a kind whose credentials of these names go to the provider's API, and whose others only check what comes in. */
export function sentToApi(...names: string[]): ChannelKind['sentTo'] {
  return (credential, { apiBaseUrl }) => {
    if (!names.includes(credential)) return null;
    return apiBaseUrl === null ? "the provider's own API" : new URL(apiBaseUrl).origin;
  };
}

/** The provider's API: where the channel says, else where the provider says. */
export function apiOf(setup: ChannelSetup, usual: string): string {
  return setup.apiBaseUrl ?? usual;
}

/**
 * Whether a URL out of a payload leads to the provider itself, over TLS: only then do our tokens go there. `hosts` are
 * names, or `.suffix` for all names below one. The channel's own API address counts too.
 */
export function leadsTo(url: string | null, hosts: readonly string[], setup: ChannelSetup): url is string {
  if (url === null || url.length > 2_048 || !URL.canParse(url)) return false;
  const { protocol, hostname, origin, username, password, port } = new URL(url);
  if (username !== '' || password !== '') return false;
  if (setup.apiBaseUrl !== null && origin === new URL(setup.apiBaseUrl).origin) return true;
  if (protocol !== 'https:' || port !== '') return false;
  return hosts.some((host) => (host.startsWith('.') ? hostname.endsWith(host) : hostname === host));
}
