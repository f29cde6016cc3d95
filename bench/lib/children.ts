import { fork } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';

/** A Node process of the bench, with messages both ways. */
export interface Child {
  pid: number;
  ask<Reply>(request: object): Promise<Reply>;
  next<Reply>(): Promise<Reply>;
  end(): Promise<void>;
}

export function startChild(file: string, args: string[]): Child {
  const path = fileURLToPath(new URL(file, import.meta.url));
  const child: ChildProcess = fork(path, args, { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
  const exited = once(child, 'exit');
  const next = async <Reply>(): Promise<Reply> => {
    const ended = exited.then(([code]) => {
      throw new Error(`${file} ended with ${code}.`);
    });
    const [message] = await Promise.race([once(child, 'message'), ended]);
    return message as Reply;
  };
  return {
    pid: child.pid!,
    next,
    ask(request) {
      child.send(request);
      return next();
    },
    async end() {
      child.kill('SIGKILL');
      await exited;
    },
  };
}
