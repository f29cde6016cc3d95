import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createLogger, mask } from '../../src/logger.ts';

function collect(level: Parameters<typeof createLogger>[0]) {
  const written: string[] = [];
  const log = createLogger(level, (text) => void written.push(text));
  const lines = () => {
    log.flush();
    return written
      .join('')
      .trim()
      .split('\n')
      .filter(Boolean)
      .map((line) => JSON.parse(line) as Record<string, unknown>);
  };
  return { log, lines, written };
}

test('one JSON line a call, with time, level, message, context and fields', () => {
  const { log, lines } = collect('debug');
  log.child({ node: 'n1' }).info('ready', { port: 8080, cost: 12n });
  const [line] = lines();
  assert.match(String(line!['time']), /^\d{4}-\d\d-\d\dT.*Z$/);
  assert.deepEqual(
    { ...line, time: '' },
    { time: '', level: 'info', message: 'ready', node: 'n1', port: 8080, cost: '12' },
  );
});

test('what is below the level is not written, and silent writes nothing', () => {
  const { log, lines } = collect('warn');
  log.debug('a');
  log.info('b');
  log.warn('c');
  log.error('d');
  assert.deepEqual(
    lines().map((line) => line['message']),
    ['c', 'd'],
  );
  const silent = collect('silent');
  silent.log.error('e');
  assert.deepEqual(silent.lines(), []);
});

test('errors are written with their code and cause, at once', () => {
  const { log, lines, written } = collect('info');
  log.info('first');
  log.error('failed', {
    cause: Object.assign(new Error('outer', { cause: new Error('inner') }), { code: 'X' }),
  });
  assert.equal(written.length, 1);
  const cause = lines()[1]!['cause'] as { message: string; code: string; cause: { message: string } };
  assert.deepEqual([cause.message, cause.code, cause.cause.message], ['outer', 'X', 'inner']);
});

test('a line that cannot be made JSON of is told all the same', () => {
  const { log, lines } = collect('info');
  const circular: Record<string, unknown> = {};
  circular['self'] = circular;
  log.info('circular', circular);
  assert.equal(lines()[0]!['message'], 'circular');
});

test('what looks like a key, a token or a password is masked, wherever it stands', () => {
  const secrets = [
    `svc_live_${'aB3'.repeat(16)}a`,
    'Bearer abc.def-ghi_jkl',
    'sk-ant-api03-0123456789abcdef',
    'https://user:hunter2@example.com/x.git',
  ];
  const { log, lines } = collect('info');
  log.info(`got ${secrets.join(' ')}`, {
    list: secrets,
    authorization: 'Basic dXNlcjpwYXNz',
    password: 'with "quotes" and \\ in it',
  });
  const text = JSON.stringify(lines());
  for (const part of ['aB3aB3', 'abc.def', '0123456789abcdef', 'hunter2', 'dXNlcjpwYXNz', 'quotes']) {
    assert.ok(!text.includes(part), part);
  }
  assert.equal(mask('https://example.com:8080/a@b'), 'https://example.com:8080/a@b');
});

test('a key in a path is masked however it is written there', () => {
  const key = `svc_live_${'Ab1'.repeat(16)}z`;
  const escaped = [...key].map((char) => `%${char.charCodeAt(0).toString(16)}`).join('');
  const written = [key, escaped, key.replaceAll('_', '%5F'), Buffer.from(`x${key}`).toString('base64')];
  for (const form of written) {
    const { log, lines } = collect('debug');
    log.info('request', { path: `/runs/${form}` });
    const path = String(lines()[0]!['path']);
    assert.ok(path.includes('[masked') && !path.includes(form.slice(9, 40)), path);
  }
  const { log, lines } = collect('debug');
  const path = '/v1/agents/01a222c0-6dc6-7000-88c0-8b6e4d03a01b/runs/a%20b';
  log.info('request', { path });
  assert.equal(lines()[0]!['path'], path);
});
