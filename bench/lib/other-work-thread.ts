import { cpus } from 'node:os';
import { parentPort } from 'node:worker_threads';
import { Others } from './others.ts';
import { allProcesses } from './process-tree.ts';

const BETWEEN_MS = 1_000;

const startMs = performance.now();
const others = new Others(process.pid, allProcesses());
let usedMs = 0;
const look = () => {
  usedMs += others.next(allProcesses());
};
setInterval(look, BETWEEN_MS);
parentPort?.once('message', () => {
  look();
  parentPort?.postMessage(usedMs / ((performance.now() - startMs) * cpus().length), []);
});
parentPort?.postMessage('watching', []);
