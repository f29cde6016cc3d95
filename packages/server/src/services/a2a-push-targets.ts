import { isPublicAddress, parseAddress } from '../domain/address-ranges.ts';
import { invalid } from '../domain/errors.ts';
import { HostNotFound, UrlRefused } from '../domain/url-guard.ts';
import type { CheckedUrl, UrlGuard } from '../domain/url-guard.ts';

/** Where push notifications may go. */
export interface PushTargets {
  /**
   * At registration. A name that cannot be resolved now may be by the time of the first update. Throws `invalid_request`.
   */
  check(url: string): Promise<void>;
  /** At each attempt: the addresses that may be dialled. Throws UrlRefused. */
  resolve(url: string): Promise<CheckedUrl>;
}

/** How long a registration waits for a name server. */
const lookupMs = 2_000;

export function createPushTargets(guard: UrlGuard): PushTargets {
  async function resolve(url: string): Promise<CheckedUrl> {
    const checked = await guard.check(url, ['https:', 'http:']);
    const isPublic = (address: string) => {
      const parsed = parseAddress(address);
      return parsed !== null && isPublicAddress(parsed);
    };
    // In an operator's own network, which has to be opened for it, there may be no certificates.
    if (checked.url.protocol === 'http:' && checked.addresses.some(isPublic)) {
      throw new UrlRefused('The URL must begin with https://, since its host is on the public internet.');
    }
    return checked;
  }

  return {
    resolve,
    async check(url) {
      let timer: NodeJS.Timeout | undefined;
      const late = new Promise<null>((done) => {
        timer = setTimeout(() => done(null), lookupMs);
      });
      try {
        await Promise.race([resolve(url), late]);
      } catch (error) {
        if (error instanceof HostNotFound) return;
        if (error instanceof UrlRefused) throw invalid('url', error.message);
        throw error;
      } finally {
        clearTimeout(timer);
      }
    },
  };
}
