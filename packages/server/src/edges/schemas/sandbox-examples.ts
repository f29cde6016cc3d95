import { agent } from './examples.ts';

export const sandbox = {
  agentId: agent.id,
  state: 'running' as const,
  frozen: false,
  sandboxId: '0197c2b9-1a20-7c91-8d3e-7f6a5b4c3d2e',
  node: '0197c2a0-55e1-7d04-9b8c-1f2e3d4c5b6a',
  since: '2026-11-28T09:35:04.120Z',
  cpuMicros: 1_840_000,
  memoryBytes: 83_886_080,
  processes: 9,
  runningTurns: 1,
  costSoFar: '0.012500',
  reason: null,
};

export const stoppedSandbox = {
  ...sandbox,
  state: 'stopped' as const,
  since: '2026-11-28T09:50:11.004Z',
  cpuMicros: null,
  memoryBytes: null,
  processes: null,
  runningTurns: 0,
  reason: 'It was stopped.',
};

export const file = {
  name: 'summary.md',
  href: `/sandbox/${agent.id}/files/reports/summary.md`,
  type: 'file' as const,
  sizeBytes: 1834,
  mode: '644',
  modifiedAt: '2026-11-28T09:36:20.000Z',
  target: null,
  etag: '"2bq-1ek-i6f3k"',
};

export const exec = { command: ['git', 'log', '--oneline', '-1'] };

export const execAnswer = {
  exitCode: 0,
  signal: null,
  timedOut: false,
  sandboxEnd: null,
  durationMs: 12,
  stdout: '9fceb02 Add the summary\n',
  stderr: '',
  encoding: 'utf-8' as const,
  truncated: false,
};

export const execStream = [
  'event: stdout\ndata: {"data":"9fceb02 Add the summary\\n","encoding":"utf-8"}',
  'event: exit\ndata: {"exitCode":0,"signal":null,"timedOut":false,"sandboxEnd":null,"durationMs":12}',
  '',
].join('\n\n');

export const logPosition = `${sandbox.sandboxId}:0197c2b8-90d0-7a41-9f2c-3b4c5d6e7f80:7`;

export const logStream = [
  `id: ${logPosition}\nevent: line\ndata: {"at":"2026-11-28T09:36:20.000Z","text":"The model took long to answer."}`,
  '',
].join('\n\n');

export const snapshot = {
  id: '0197c2ba-2a10-7e44-b3c9-8d7e6f5a4b3c',
  agentId: agent.id,
  name: 'before the migration',
  sizeBytes: 48_211_968,
  storedBytes: 9_120_311,
  createdAt: '2026-11-28T09:40:00.000Z',
};
