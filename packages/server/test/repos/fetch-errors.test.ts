import assert from 'node:assert/strict';
import { test } from 'node:test';
import { explainFetchFailure } from '../../src/repos/fetch-errors.ts';

const facts = {
  timedOut: false,
  tooLarge: false,
  hasToken: false,
  packBytes: 1,
  timeoutMs: 1_000,
  isListing: false,
};

/** As git, and curl below it, write them with OpenSSL and with GnuTLS. */
const told: [stderr: string, message: RegExp][] = [
  [
    'server certificate verification failed. CAfile: none CRLfile: none',
    /certificate of the server is not trusted/,
  ],
  ['SSL certificate problem: self-signed certificate', /certificate of the server is not trusted/],
  ['GnuTLS recv error (-110): The TLS connection was non-properly terminated.', /broke it off/],
  ['gnutls_handshake() failed: An unexpected TLS packet was received.', /may speak no TLS/],
  ['OpenSSL SSL_connect: SSL_ERROR_SYSCALL in connection to host.example:443', /broke it off/],
  ['Could not resolve host: host.example', /host cannot be found/],
  ['Failed to connect to host.example port 443', /cannot be reached/],
];

test('a failed secure connection is told for its certificate only when that was the reason', () => {
  for (const [stderr, message] of told) {
    const text = explainFetchFailure(`fatal: unable to access 'https://host.example/r/': ${stderr}`, facts);
    assert.match(text, message, stderr);
    if (!/certificate/.test(stderr)) assert.doesNotMatch(text, /certificate/, stderr);
  }
});
