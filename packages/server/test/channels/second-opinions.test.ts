import assert from 'node:assert/strict';
import { generateKeyPairSync, type KeyObject } from 'node:crypto';
import https from 'node:https';
import { test } from 'node:test';
import { sign as octokitSign, verify as octokitVerify } from '@octokit/webhooks-methods';
import { EventWebhook } from '@sendgrid/eventwebhook';
import { verifyKey } from 'discord-interactions';
import { exportJWK, SignJWT } from 'jose';
import MessageValidator from 'sns-validator';
import { Webhook } from 'standardwebhooks';
import { kinds } from '../../src/channels/kinds.ts';
import { claimsHold, isSignedBy, keyOfSet, readToken, signToken } from '../../src/channels/jwt.ts';
import { signAws } from '../../src/channels/mail/aws-signature.ts';
import { signStandard } from '../../src/channels/standard-webhooks.ts';
import type { InboundRequest } from '../../src/domain/ports/channel.ts';
import { discordFixture, discordPublicKey, twilioFixture, whatsappFixture } from './fixtures/chat.ts';
import {
  genericFixture,
  genericHmacFixture,
  githubFixture,
  gitlabSignedFixture,
  linearFixture,
  standardSecret,
} from './fixtures/code.ts';
import { hookUrl, nowMs, setupOf, signed, type Fixture } from './fixtures/fixture.ts';
import {
  certificateUrl,
  mailgunFixture,
  mimeFixture,
  resendFixture,
  sendgridFixture,
  sendgridPublicKey,
  sesFixture,
  snsCertificate,
} from './fixtures/mail.ts';
import { slackFixture } from './fixtures/slack.ts';
import { serviceKeys } from './fixtures/tokens.ts';

const verdict = (fixture: Fixture, request: InboundRequest, atMs = nowMs, over = {}) =>
  kinds[fixture.kind].verify(request, setupOf(fixture, over), atMs, fixture.documents ?? new Map()).verdict;

test("Slack's own documented example is genuine", () => {
  const body =
    'token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c';
  const headers = new Map([
    ['content-type', 'application/x-www-form-urlencoded'],
    ['x-slack-request-timestamp', '1531420618'],
    ['x-slack-signature', 'v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503'],
  ]);
  const request = { method: 'POST', url: hookUrl, headers, body: Buffer.from(body) };
  assert.equal(verdict(slackFixture, request, 1_531_420_618_000), 'genuine');
  const { events } = kinds.slack.parse(request, setupOf(slackFixture));
  assert.equal(events[0]!.kind, 'slack.command');
  assert.equal(events[0]!.text, '/webhook-collect');
});

test("GitHub's own documented example is genuine", () => {
  const headers = new Map([
    ['content-type', 'application/json'],
    ['x-hub-signature-256', 'sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17'],
  ]);
  const request = { method: 'POST', url: hookUrl, headers, body: Buffer.from('Hello, World!') };
  const credentials = { webhookSecret: "It's a Secret to Everybody" };
  assert.equal(verdict(githubFixture, request, nowMs, { credentials }), 'genuine');
});

test("Twilio's own documented example is genuine", () => {
  const fields = {
    CallSid: 'CA1234567890ABCDE',
    Caller: '+14158675309',
    Digits: '1234',
    From: '+14158675309',
    To: '+18005551212',
  };
  const request = {
    method: 'POST',
    url: 'https://mycompany.com/myapp.php?foo=1&bar=2',
    headers: new Map([
      ['content-type', 'application/x-www-form-urlencoded'],
      ['x-twilio-signature', 'RSOYDt4T1cUTdK1PDd93/VVr8B8='],
    ]),
    body: Buffer.from(new URLSearchParams(fields).toString()),
  };
  const credentials = { accountSid: 'AC1', authToken: '12345' };
  assert.equal(verdict(twilioFixture, request, nowMs, { credentials }), 'genuine');
});

test('octokit signs what GitHub, WhatsApp and Linear channels take, and takes what the fixtures sign', async () => {
  for (const fixture of [githubFixture, whatsappFixture, linearFixture]) {
    const unsigned = fixture.message({ text: 'Grüße 🎉' });
    const secret = fixture.credentials[kinds[fixture.kind].signing({})!.credential]!;
    const signature = await octokitSign(secret, String(unsigned.body));
    const request = signed(fixture, unsigned);
    const headers = new Map(request.headers)
      .set('x-hub-signature-256', signature)
      .set('linear-signature', signature.replace('sha256=', ''));
    assert.equal(verdict(fixture, { ...request, headers }), 'genuine', fixture.title);
    const ours =
      request.headers.get('x-hub-signature-256') ?? `sha256=${request.headers.get('linear-signature')}`;
    assert.equal(await octokitVerify(secret, String(unsigned.body), ours), true);
  }
});

test('the standardwebhooks package signs what generic channels take, and takes what we sign', () => {
  const at = new Date();
  const unsigned = genericFixture.message({ text: 'Grüße 🎉' });
  const other = new Webhook(standardSecret);
  const headers = new Map([
    ['content-type', 'application/json'],
    ['webhook-id', 'msg_9'],
    ['webhook-timestamp', String(Math.floor(at.getTime() / 1000))],
    ['webhook-signature', `v1,AAAA v1a,BBBB ${other.sign('msg_9', at, String(unsigned.body))}`],
  ]);
  const request = { method: 'POST', url: hookUrl, headers, body: Buffer.from(unsigned.body) };
  assert.equal(verdict(genericFixture, request, at.getTime()), 'genuine');
  const ours = signStandard('msg_9', Math.floor(at.getTime() / 1000), String(unsigned.body), standardSecret);
  assert.deepEqual(other.verify(String(unsigned.body), ours), JSON.parse(String(unsigned.body)));
});

test("Discord's and SendGrid's own packages agree with us on genuine and changed bodies", async () => {
  const discord = signed(discordFixture, discordFixture.message({}));
  const [signature, time] = ['x-signature-ed25519', 'x-signature-timestamp'].map((name) =>
    discord.headers.get(name)!,
  );
  assert.equal(await verifyKey(discord.body, signature!, time!, discordPublicKey), true);
  assert.equal(await verifyKey('{}', signature!, time!, discordPublicKey), false);
  assert.equal(verdict(discordFixture, { ...discord, body: Buffer.from('{}') }), 'forged');

  const mail = signed(sendgridFixture, sendgridFixture.message({}));
  const [mailSignature, mailTime] = ['signature', 'timestamp'].map((name) =>
    mail.headers.get(`x-twilio-email-event-webhook-${name}`)!,
  );
  const theirs = new EventWebhook();
  const key = theirs.convertPublicKeyToECDSA(sendgridPublicKey);
  assert.equal(theirs.verifySignature(key, mail.body, mailSignature!, mailTime!), true);
  assert.equal(verdict(sendgridFixture, mail), 'genuine');
});

test("Amazon's own validator agrees with us on both versions of SNS signatures", async () => {
  const { signSns } = await import('./fixtures/mail.ts');
  for (const version of ['1', '2']) {
    const request = signSns(sesFixture.message({}), nowMs, serviceKeys.privateKey, version);
    const body = JSON.parse(String(request.body)) as Record<string, unknown>;
    await validated({ ...body });
    const inbound = { ...signed(sesFixture, request), body: Buffer.from(request.body) };
    assert.equal(verdict(sesFixture, inbound), 'genuine');
    const changed = { ...body, Message: `${body['Message'] as string} ` };
    await assert.rejects(validated(changed));
    assert.equal(verdict(sesFixture, { ...inbound, body: Buffer.from(JSON.stringify(changed)) }), 'forged');
  }
});

/** The package fetches the certificate itself: it gets ours, and nothing leaves the machine. */
function validated(body: Record<string, unknown>): Promise<unknown> {
  return new Promise((resolve, reject) => {
    const original = https.get;
    const answer = {
      statusCode: 200,
      on(name: string, done: (chunk?: Buffer) => void) {
        if (name === 'data') done(Buffer.from(snsCertificate));
        if (name === 'end') done();
        return answer;
      },
    };
    https.get = ((url: string, done: (response: unknown) => void) => {
      assert.equal(url, certificateUrl);
      done(answer);
      return { on() {} };
    }) as unknown as typeof https.get;
    try {
      new MessageValidator().validate(body, (error: Error | null, valid: unknown) =>
        error ? reject(error) : resolve(valid),
      );
    } finally {
      https.get = original;
    }
  });
}

test('jose signs tokens that we take, and refuses what we refuse', async () => {
  const { privateKey, publicKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
  const jwk = { ...(await exportJWK(publicKey)), kid: 'k1' };
  const set = { keys: [jwk] };
  const made = await new SignJWT({ aud: 'app' })
    .setProtectedHeader({ alg: 'RS256', kid: 'k1' })
    .setIssuer('https://issuer')
    .setExpirationTime(nowMs / 1000 + 60)
    .sign(privateKey);
  const token = readToken(made)!;
  assert.equal(isSignedBy(token, keyOfSet(set, token) as KeyObject), true);
  assert.equal(claimsHold(token, { issuers: ['https://issuer'], audience: 'app' }, nowMs), 'yes');
  assert.equal(claimsHold(token, { issuers: ['https://issuer'], audience: 'other' }, nowMs), 'no');
  assert.equal(claimsHold(token, { issuers: ['https://other'], audience: 'app' }, nowMs), 'no');
  assert.equal(claimsHold(token, { issuers: ['https://issuer'], audience: 'app' }, nowMs + 600_000), 'stale');
  const pem = publicKey.export({ type: 'spki', format: 'pem' });
  // The public key as the secret of an HMAC, the oldest trick with these tokens.
  const confused = await new SignJWT({ aud: 'app' })
    .setProtectedHeader({ alg: 'HS256', kid: 'k1' })
    .setIssuer('https://issuer')
    .setExpirationTime(nowMs / 1000 + 60)
    .sign(Buffer.from(pem));
  assert.equal(isSignedBy(readToken(confused)!, publicKey), false);
  const none = `${Buffer.from('{"alg":"none"}').toString('base64url')}.${made.split('.')[1]}.AA`;
  assert.equal(isSignedBy(readToken(none)!, publicKey), false);
  const { jwtVerify } = await import('jose');
  const own = signToken(
    { iss: 'me', exp: Math.floor(Date.now() / 1000) + 60 },
    privateKey.export({ type: 'pkcs8', format: 'pem' }) as string,
  );
  assert.equal((await jwtVerify(own, publicKey, { issuer: 'me' })).payload.iss, 'me');
});

test("the published example of Svix and Standard Webhooks is genuine for Resend, GitLab's signing tokens, raw mail and generic channels", () => {
  // docs.svix.com, "Verifying webhooks manually", and the tests of the reference libraries of Standard Webhooks.
  const body = '{"test": 2432232314}';
  const atMs = 1_614_265_330_000;
  const secret = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw';
  const values = {
    id: 'msg_p5jXN8AQM9LWM0D4loKWxJek',
    timestamp: '1614265330',
    signature: 'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=',
  };
  for (const [fixture, credential, prefix] of [
    [resendFixture, 'webhookSecret', 'svix'],
    [gitlabSignedFixture, 'webhookSecret', 'webhook'],
    [mimeFixture, 'webhookSecret', 'webhook'],
    [genericFixture, 'secret', 'webhook'],
  ] as const) {
    const headers = new Map(Object.entries(values).map(([name, value]) => [`${prefix}-${name}`, value]));
    const request = { method: 'POST', url: hookUrl, headers, body: Buffer.from(body) };
    const over = (given: string) => ({ credentials: { ...fixture.credentials, [credential]: given } });
    assert.equal(verdict(fixture, request, atMs, over(secret)), 'genuine', fixture.title);
    const changed = { ...request, body: Buffer.from(body.replace('14}', '15}')) };
    assert.equal(verdict(fixture, changed, atMs, over(secret)), 'forged', fixture.title);
    const renamed = { ...request, headers: new Map(headers).set(`${prefix}-id`, 'msg_2') };
    assert.equal(verdict(fixture, renamed, atMs, over(secret)), 'forged', fixture.title);
    assert.equal(verdict(fixture, request, atMs, over(standardSecret)), 'forged', fixture.title);
    assert.equal(verdict(fixture, request, atMs + 301_000, over(secret)), 'forged', fixture.title);
  }
});

test('the standardwebhooks package signs what Resend, GitLab with a signing token and senders of raw mail would, and takes what the fixtures sign', () => {
  const at = new Date();
  const other = new Webhook(standardSecret);
  for (const [fixture, prefix] of [
    [resendFixture, 'svix'],
    [gitlabSignedFixture, 'webhook'],
    [mimeFixture, 'webhook'],
  ] as const) {
    const unsigned = fixture.message({});
    const body = String(unsigned.body);
    const ours = signed(fixture, unsigned, at.getTime());
    const header = (name: string) => ours.headers.get(`${prefix}-${name}`)!;
    const asStandard = Object.fromEntries(
      ['id', 'timestamp', 'signature'].map((name) => [`webhook-${name}`, header(name)]),
    );
    other.verify(body, asStandard, { jsonParse: false });
    assert.throws(() => other.verify(`${body} `, asStandard, { jsonParse: false }), fixture.title);
    const theirs = new Map(ours.headers).set(`${prefix}-signature`, other.sign(header('id'), at, body));
    assert.equal(verdict(fixture, { ...ours, headers: theirs }, at.getTime()), 'genuine', fixture.title);
    const wrong = new Map(ours.headers).set(`${prefix}-signature`, other.sign(header('id'), at, `${body} `));
    assert.equal(verdict(fixture, { ...ours, headers: wrong }, at.getTime()), 'forged', fixture.title);
  }
});

test("octokit's HMAC signs Mailgun's timestamp and token as we expect it, and a timed generic body", async () => {
  // documentation.mailgun.com, "Securing webhooks": HMAC-SHA256 in hex, by the signing key, over timestamp and token.
  const [timestamp, token] = [String(nowMs / 1000), 'a8ce0edb2dd8301dee6c2405235584e45aa91d1e9f979f3de0'];
  const hmacOf = async (secret: string, text: string) =>
    (await octokitSign(secret, text)).replace('sha256=', '');
  const mail = async (over: Record<string, string>) => {
    const form = new URLSearchParams(String(mailgunFixture.message({}).body));
    const signature = await hmacOf('mailgun-key-1', timestamp + token);
    for (const [name, value] of Object.entries({ timestamp, token, signature, ...over }))
      form.set(name, value);
    const headers = new Map([['content-type', mailgunFixture.contentType]]);
    return { method: 'POST', url: hookUrl, headers, body: Buffer.from(form.toString()) };
  };
  assert.equal(verdict(mailgunFixture, await mail({})), 'genuine');
  assert.equal(verdict(mailgunFixture, await mail({ token: `${token}0` })), 'forged');
  const stranger = await hmacOf('another-key', timestamp + token);
  assert.equal(verdict(mailgunFixture, await mail({ signature: stranger })), 'forged');

  const body = String(genericHmacFixture.message({ text: 'Grüße 🎉' }).body);
  const settings = {
    ...genericHmacFixture.settings,
    algorithm: 'sha256',
    encoding: 'hex',
    signaturePrefix: '',
  };
  const hook = async (signedText: string) => ({
    method: 'POST',
    url: hookUrl,
    headers: new Map([
      ['content-type', 'application/json'],
      ['x-shop-signature-time', timestamp],
      ['x-shop-signature', await hmacOf('shop-secret-1', signedText)],
    ]),
    body: Buffer.from(body),
  });
  assert.equal(
    verdict(genericHmacFixture, await hook(`${timestamp}.${body}`), nowMs, { settings }),
    'genuine',
  );
  // The time is not covered.
  assert.equal(verdict(genericHmacFixture, await hook(body), nowMs, { settings }), 'forged');
});

test('the published HMACs of RFC 2202 and RFC 4231 are genuine for generic channels of each algorithm and encoding', () => {
  // Test case 2 of both.
  const known = {
    sha1: 'effcdf6ae5eb2fa2d27416d5f184df9c259a7c79',
    sha256: '5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843',
    sha512:
      '164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea2505549758bf75c05a994a6d034f65f8f0e6fdcaeab1a34d4a6b4b636e070a38bce737',
  };
  for (const [algorithm, hex] of Object.entries(known)) {
    for (const encoding of ['hex', 'base64'] as const) {
      const settings = {
        scheme: 'hmac',
        signatureHeader: 'X-Mac',
        signaturePrefix: 'mac=',
        algorithm,
        encoding,
      };
      const over = { settings, credentials: { secret: 'Jefe' } };
      const request = (body: string) => ({
        method: 'POST',
        url: hookUrl,
        headers: new Map([['x-mac', `mac=${Buffer.from(hex, 'hex').toString(encoding)}`]]),
        body: Buffer.from(body),
      });
      const right = request('what do ya want for nothing?');
      assert.equal(verdict(genericHmacFixture, right, nowMs, over), 'genuine', `${algorithm} ${encoding}`);
      assert.equal(verdict(genericHmacFixture, request('what do ya want?'), nowMs, over), 'forged');
    }
  }
});

test("a request to Amazon is signed as in Amazon's own example", () => {
  // docs.aws.amazon.com, S3 API reference, "Signature Calculations: Transferring Payload in a Single Chunk": GET with a range.
  const call = {
    method: 'GET' as const,
    url: 'https://examplebucket.s3.amazonaws.com/test.txt',
    headers: { range: 'bytes=0-9' },
    body: null,
    token: null,
  };
  const keys = {
    accessKeyId: 'AKIAIOSFODNN7EXAMPLE',
    secretAccessKey: 'wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY',
    region: 'us-east-1',
    service: 's3',
  };
  const { headers } = signAws(call, keys, Date.parse('2013-05-24T00:00:00Z'));
  assert.match(
    headers['authorization']!,
    /Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41$/,
  );
});
