import { join } from 'node:path';
import { startChild } from './children.ts';
import type { Child } from './children.ts';
import type { FloorReply, FloorRequest } from './floor-process.ts';

/** The scripted model, and the bare client that asks it directly. */
export interface ScriptedModel {
  /** On loopback. */
  port: number;
  floor(request: FloorRequest): Promise<FloorReply>;
  end(): Promise<void>;
}

/** `dir`: for a socket, which whoever made the folder removes. */
export async function startModel(dir: string): Promise<ScriptedModel> {
  const socket = join(dir, 'model.sock');
  const children: Child[] = [];
  const end = async () => {
    for (const child of children) await child.end();
  };
  try {
    const model = startChild('./model-process.ts', [socket]);
    children.push(model);
    const { port } = await model.next<{ port: number }>();
    const floor = startChild('./floor-process.ts', [socket]);
    children.push(floor);
    return { port, floor: (request) => floor.ask<FloorReply>(request), end };
  } catch (error) {
    await end();
    throw error;
  }
}
