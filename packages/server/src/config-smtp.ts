import { ConfigError, number } from './config-values.ts';
import { vars, type Env } from './config-variables.ts';

export interface SmtpConfig {
  host: string;
  port: number;
  name: string;
  tls: { certFile: string; keyFile: string } | null;
}

/** Null: there is no listener for mail. Throws ConfigError. */
export function readSmtp(env: Env, baseUrl: string): SmtpConfig | null {
  const port = vars.smtpPort(env);
  const name = vars.smtpName(env) || new URL(baseUrl).hostname;
  if (!/^[a-z0-9.-]{1,255}$/i.test(name)) {
    throw new ConfigError(`BERTH_SMTP_NAME must be a host name; it is "${name}".`);
  }
  const certFile = vars.smtpCert(env);
  const keyFile = vars.smtpKey(env);
  if ((certFile === '') !== (keyFile === '')) {
    const [set, missing] = certFile === '' ? ['KEY', 'CERT'] : ['CERT', 'KEY'];
    throw new ConfigError(
      `BERTH_SMTP_TLS_${set} needs BERTH_SMTP_TLS_${missing} too: a certificate and its key.`,
    );
  }
  const wanted = number('BERTH_SMTP_PORT', port, 0, 0, 65535);
  if (port === '') return null;
  return {
    host: vars.smtpHost(env) || '127.0.0.1',
    port: wanted,
    name,
    tls: certFile === '' ? null : { certFile, keyFile },
  };
}
