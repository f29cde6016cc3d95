import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { ConfigError } from '../src/config-values.ts';
import { readConfig } from '../src/config.ts';
import { variables } from '../src/config-variables.ts';

/** Values that each variable refuses; a variable that takes any text has none. */
const bad: Record<string, string[]> = {
  BERTH_PORT: ['eighty', '-1', '65536', '80.5', '0x50e'],
  BERTH_BASE_URL: ['localhost:8080', 'ftp://a', 'http://a/path', 'http://user@a', 'https://a?b'],
  BERTH_APP_DOMAIN: ['https://a', 'a b', 'a:port'],
  BERTH_DATABASE_URL: ['mysql://a/b', 'a'],
  BERTH_DATABASE_POOL: ['1', '101', 'many'],
  BERTH_SANDBOX: ['none', 'Docker'],
  BERTH_MIN_ISOLATION: ['strong', 'Kernel'],
  BERTH_UNSAFE_PROCESS_SANDBOX: ['yes', 'true'],
  BERTH_DOCKER_SOCKET: ['docker.sock', 'tcp://localhost:2375', `/${'x'.repeat(108)}`],
  BERTH_DOCKER_RUNTIME: ['a b', '/usr/bin/runsc', '-x'],
  BERTH_DOCKER_IMAGE: ['a b'],
  BERTH_RATE_LIMIT: ['600', '600/0', '0/60', 'a/b', '600/60/1'],
  BERTH_ENCRYPTION_KEY: ['short', 'g'.repeat(64)],
  BERTH_ALLOW_PRIVATE_NETWORKS: ['127.0.0.1', 'localhost/8', '10.0.0.0/33', '300.0.0.0/8', '::1/129'],
  BERTH_A2A_GRPC_PORT: ['grpc', '-1', '65536', '8080'],
  BERTH_A2A_GRPC_PUBLIC_PORT: ['0', '65536', 'https'],
  BERTH_A2A_CAPABILITIES: ['all', 'streaming,push', 'none,streaming', ','],
  BERTH_SMTP_PORT: ['25a', '-1', '65536'],
  BERTH_SMTP_NAME: ['a b', 'https://a'],
  BERTH_SMTP_TLS_CERT: ['/a/certificate.pem'],
  BERTH_SMTP_TLS_KEY: ['/a/key.pem'],
  BERTH_TRUSTED_PROXIES: ['10.0.0.1', 'proxy', '10.0.0.0/33', '::1/129'],
  BERTH_EGRESS_DEFAULT: ['all', 'npm,nope', ',', 'none,npm'],
  BERTH_DEFAULT_MODEL: ['gpt', '/model', 'openai/'],
  BERTH_MODEL_PROVIDERS: ['/no/such/file.json'],
  BERTH_SANDBOX_MEMORY_MB: ['63', '1.5', 'lots'],
  BERTH_SANDBOX_CPUS: ['0', '257'],
  BERTH_SANDBOX_PIDS: ['31', '32769'],
  BERTH_SANDBOX_DISK_MB: ['15', '1048577'],
  BERTH_DISK_MODE: ['hard', 'Image'],
  BERTH_SANDBOX_DISK_WRITE_MB: ['-1', '8.5', '65537'],
  BERTH_SNAPSHOT_MIN_FREE_MB: ['-1', '1.5', '1048577', 'x'],
  BERTH_SANDBOX_IDLE_SECONDS: ['0', '86401'],
  BERTH_FREEZE_AFTER_SECONDS: ['-1', '86401'],
  BERTH_DETACH: ['yes', 'off'],
  BERTH_WARM_SANDBOXES: ['-1', '1001', '1.5'],
  BERTH_MAX_SANDBOXES: ['0', '10001'],
  BERTH_MAX_ACTIVE_AGENTS: ['0', '100001'],
  BERTH_MAX_CONCURRENT_RUNS: ['0', '100001'],
  BERTH_RUN_TIMEOUT_SECONDS: ['0', '86401'],
  BERTH_RUN_MAX_ATTEMPTS: ['0', '11'],
  BERTH_LEASE_SECONDS: ['1', '301'],
  BERTH_DRAIN_SECONDS: ['-1', '3601'],
  BERTH_LOG_LEVEL: ['loud'],
};
const anyText = ['BERTH_HOST', 'BERTH_SMTP_HOST', 'BERTH_DATA_DIR', 'BERTH_ENCRYPTION_KEY_FILE'];

test('An agent gets a disk of its own by default, but not where replicas may share volumes, unless that is asked for.', () => {
  const modeOf = (env: Record<string, string>) => readConfig(env).sandbox.diskMode;
  const shared = { BERTH_DATABASE_URL: 'postgres://host/berth' };
  assert.equal(modeOf({}), 'auto');
  assert.equal(modeOf(shared), 'watch');
  assert.equal(modeOf({ ...shared, BERTH_DISK_MODE: 'auto' }), 'watch');
  assert.equal(modeOf({ ...shared, BERTH_DISK_MODE: 'image' }), 'image');
});

test('Every variable refuses bad values with an error that begins with its name.', () => {
  for (const { name } of variables) {
    if (anyText.includes(name)) continue;
    assert.ok(bad[name], `${name} has bad values in this test`);
    for (const value of bad[name]) {
      assert.throws(
        () => readConfig({ [name]: value }),
        (error: unknown) => error instanceof ConfigError && error.message.startsWith(name),
        `${name}=${value}`,
      );
    }
  }
});

test('Values that may hold a secret are not repeated by the error that refuses them.', () => {
  for (const name of ['BERTH_DATABASE_URL', 'BERTH_ENCRYPTION_KEY']) {
    assert.throws(
      () => readConfig({ [name]: 'hush-hush' }),
      (error: Error) => !error.message.includes('hush'),
    );
  }
});

test('Without any variable everything has its documented default.', () => {
  const config = readConfig({});
  assert.equal(config.host, '127.0.0.1');
  assert.equal(config.port, 8080);
  assert.equal(config.baseUrl, 'http://localhost:8080');
  assert.equal(config.appDomain, 'localhost:8080');
  assert.deepEqual(config.rateLimit, { quota: 600, windowSeconds: 60 });
  assert.deepEqual(config.a2aCapabilities, ['streaming', 'pushNotifications', 'extendedAgentCard']);
  assert.deepEqual(readConfig({ BERTH_A2A_CAPABILITIES: 'streaming' }).a2aCapabilities, ['streaming']);
  assert.deepEqual(readConfig({ BERTH_A2A_CAPABILITIES: 'none' }).a2aCapabilities, []);
  assert.equal(config.databaseUrl, null);
});

test('The docker driver needs an image, and auto is bubblewrap.', () => {
  assert.throws(
    () => readConfig({ BERTH_SANDBOX: 'docker' }),
    /^Error: BERTH_DOCKER_IMAGE must name an image/,
  );
  assert.equal(readConfig({ BERTH_SANDBOX: 'auto' }).sandboxDriver, 'bubblewrap');
  const config = readConfig({ BERTH_SANDBOX: 'docker', BERTH_DOCKER_IMAGE: 'berth-sandbox:1' });
  assert.deepEqual(config.docker, {
    socket: '/var/run/docker.sock',
    runtime: null,
    image: 'berth-sandbox:1',
  });
});

test('The page on configuration names every variable with its default.', () => {
  const page = readFileSync(new URL('../../../docs/configuration.md', import.meta.url), 'utf8');
  for (const { name, fallback } of variables) {
    const row = page.split('\n').find((line) => line.includes(`\`${name}\``));
    assert.ok(row, `${name} is documented`);
    assert.ok(row.includes(fallback.replace(/^\(|\)$/g, '')), `${name}: ${row} names ${fallback}`);
  }
});
