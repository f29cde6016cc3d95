import { invalid } from '../domain/errors.ts';
import type { SettingSpec } from '../domain/ports/channel.ts';
import { UrlRefused, type UrlGuard } from '../domain/url-guard.ts';

const protocols = ['https:', 'http:'];
const urlChars = 2_048;

export interface ChannelUrls {
  /** Of the settings that are given: those that hold a URL. Throws `invalid_request` that names the setting. */
  check(specs: readonly SettingSpec[], given: Readonly<Record<string, unknown>>): Promise<void>;
  /** `apiBaseUrl` as it is kept, without a slash at its end. */
  readBase(text: string | null | undefined): Promise<string | null>;
}

/** The URLs of a channel, looked at when they are given: what is wrong would else be told by the first answer that is lost. */
export function createChannelUrls(guard: UrlGuard): ChannelUrls {
  async function called(path: string, text: string): Promise<URL> {
    try {
      return (await guard.check(text, protocols)).url;
    } catch (error) {
      if (error instanceof UrlRefused) throw invalid(path, error.message);
      throw error;
    }
  }

  return {
    async check(specs, given) {
      for (const { name, type } of specs) {
        const value = given[name];
        // An empty one is as none; what is no text is told of by its type.
        if (typeof value !== 'string' || value === '') continue;
        if (type === 'calledUrl') await called(`settings.${name}`, value);
        if (type === 'namedUrl') requireNamed(`settings.${name}`, value);
      }
    },

    async readBase(text) {
      if (text === null || text === undefined) return null;
      const url = await called('apiBaseUrl', text);
      if (url.search !== '' || url.hash !== '')
        throw invalid('apiBaseUrl', 'The URL may have no query and no fragment.');
      return url.href.replace(/\/$/, '');
    },
  };
}

/** As it was entered at the provider, which may take a user name and password in it; nobody connects there. */
function requireNamed(path: string, text: string): void {
  const isUrl = text.length <= urlChars && !/\s/.test(text) && URL.canParse(text);
  if (!isUrl || !protocols.includes(new URL(text).protocol))
    throw invalid(
      path,
      'must be a URL that begins with https:// or http://, as it was entered at the provider.',
    );
}
