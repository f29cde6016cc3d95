export { launch } from './launcher.ts';
export { Agent } from './agent.ts';
export type { AgentOptions } from './agent.ts';
export type { Paths, Settings } from './settings.ts';
