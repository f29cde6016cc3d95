import type { EgressTarget } from '../../domain/egress-policy.ts';
import type { Interceptor } from '../interceptor.ts';
import { findPlaceholders } from './request-secrets.ts';
import { wrongHost, type BrokerSession } from './session.ts';

type Refusal = { kind: 'refuse'; reason: 'placeholder_to_wrong_host'; message: string };

/** Plain HTTP: no value ever goes that way, so a placeholder in it is refused, whatever the host. */
export function plainHalf(session: BrokerSession): Pick<Interceptor, 'plainRequest' | 'plainBody'> {
  const verdict = (target: EgressTarget, keys: Set<string>): { kind: 'pass' } | Refusal => {
    const [key] = keys;
    if (key === undefined) return { kind: 'pass' };
    const [foreign] = session.foreignToName(keys, target.host);
    if (foreign !== undefined) {
      const { message } = wrongHost(foreign, target);
      return { kind: 'refuse', reason: 'placeholder_to_wrong_host', message };
    }
    const message = `The secret ${key} goes over https only, and this is a request over plain HTTP.`;
    return { kind: 'refuse', reason: 'placeholder_to_wrong_host', message };
  };
  return {
    plainRequest(target, head) {
      const { inHeaders, elsewhere } = findPlaceholders(session.placeholders, head);
      return verdict(target, new Set([...inHeaders, ...elsewhere]));
    },
    plainBody: (target, start) => verdict(target, session.placeholders.in(start.toString('latin1'))),
  };
}
