import { executionAsyncResource } from 'node:async_hooks';

// What process.nextTick queues has a shape that V8 forgets when a whole collection finds none in the queue. From then on
// each tick takes five times as long, for good. One that is kept keeps the shape (docs/decisions/0245-shape-of-ticks.md).
const kept = [];
process.nextTick(() => kept.push(executionAsyncResource()));
