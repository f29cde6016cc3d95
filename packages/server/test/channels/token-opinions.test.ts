import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createLocalJWKSet, exportJWK, importX509, jwtVerify, SignJWT } from 'jose';
import { kinds } from '../../src/channels/kinds.ts';
import { nowMs, setupOf, signed } from './fixtures/fixture.ts';
import { snsCertificate } from './fixtures/mail.ts';
import {
  chatClaims,
  googleChatFixture,
  serviceKeys,
  strangerKeys,
  teamsClaims,
  teamsFixture,
} from './fixtures/tokens.ts';

test('tokens that jose signs for Teams and Google Chat are taken and refused as jose itself takes and refuses them', async () => {
  const jwk = { ...(await exportJWK(serviceKeys.publicKey)), kid: 'jose-1', alg: 'RS256' };
  const set = { keys: [jwk] };
  const teamsKeys = 'https://login.botframework.com/v1/.well-known/keys';
  const chatAccount = 'chat@system.gserviceaccount.com';
  const kindsOfToken = [
    {
      fixture: {
        ...teamsFixture,
        documents: new Map([
          [
            'https://login.botframework.com/v1/.well-known/openidconfiguration',
            JSON.stringify({ jwks_uri: teamsKeys }),
          ],
          [teamsKeys, JSON.stringify(set)],
        ]),
      },
      settings: teamsFixture.settings,
      claims: teamsClaims(nowMs),
    },
    {
      fixture: {
        ...googleChatFixture,
        documents: new Map([['https://www.googleapis.com/oauth2/v3/certs', JSON.stringify(set)]]),
      },
      settings: {},
      claims: { ...chatClaims(nowMs), nbf: nowMs / 1000 },
    },
    {
      fixture: {
        ...googleChatFixture,
        documents: new Map([
          [
            `https://www.googleapis.com/service_accounts/v1/metadata/x509/${chatAccount}`,
            JSON.stringify({ 'jose-1': snsCertificate }),
          ],
        ]),
      },
      settings: { projectNumber: '1234567890' },
      claims: { iss: chatAccount, aud: '1234567890', nbf: nowMs / 1000, exp: nowMs / 1000 + 3600 },
      key: await importX509(snsCertificate, 'RS256'),
    },
  ];
  for (const { fixture, settings, claims, key } of kindsOfToken) {
    const { iss: issuer, aud: audience, exp } = claims;
    const from = (over: Record<string, unknown>, by = serviceKeys.privateKey) =>
      new SignJWT({ ...claims, ...over }).setProtectedHeader({ alg: 'RS256', kid: 'jose-1' }).sign(by);
    const request = signed(fixture, fixture.message({}));
    const both = async (token: string, atMs: number) => {
      const headers = new Map(request.headers).set('authorization', `Bearer ${token}`);
      const rules = {
        issuer,
        audience,
        algorithms: ['RS256'],
        requiredClaims: ['exp'],
        clockTolerance: 300,
        currentDate: new Date(atMs),
      };
      const theirs = await (
        key ? jwtVerify(token, key, rules) : jwtVerify(token, createLocalJWKSet(set), rules)
      )
        .then(() => 'genuine')
        .catch(() => 'forged');
      const setup = setupOf(fixture, { settings });
      const ours = kinds[fixture.kind].verify({ ...request, headers }, setup, atMs, fixture.documents);
      return [ours.verdict, theirs];
    };
    const cases: [string, Promise<string>, 'genuine' | 'forged', number?][] = [
      ['as it should be', from({}), 'genuine'],
      ['for several', from({ aud: ['other', audience] }), 'genuine'],
      ['just within its time', from({}), 'genuine', exp * 1000 + 299_000],
      ['past its time', from({}), 'forged', exp * 1000 + 301_000],
      ['before its time', from({ nbf: nowMs / 1000 + 301 }), 'forged'],
      ['without an end', from({ exp: undefined }), 'forged'],
      ['of another issuer', from({ iss: 'https://issuer.example' }), 'forged'],
      ['for another', from({ aud: 'other' }), 'forged'],
      ['by another key', from({}, strangerKeys.privateKey), 'forged'],
    ];
    for (const [name, token, expected, atMs = nowMs] of cases)
      assert.deepEqual(await both(await token, atMs), [expected, expected], `${fixture.title}: ${name}`);
  }
});
