import { z } from 'zod';

const size = z.int().min(1).max(1000);
const signals = [
  'SIGINT',
  'SIGTERM',
  'SIGKILL',
  'SIGHUP',
  'SIGQUIT',
  'SIGTSTP',
  'SIGCONT',
  'SIGUSR1',
  'SIGUSR2',
] as const;

const Control = z.discriminatedUnion('type', [
  z.strictObject({ type: z.literal('resize'), columns: size, rows: size }),
  z.strictObject({ type: z.literal('signal'), signal: z.enum(signals) }),
]);

export type Control = z.output<typeof Control> | { type: 'error'; error: string };

/** A text frame of a client. What is none is told so, and the terminal goes on. */
export function readControl(text: string): Control {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return { type: 'error', error: 'A text frame must be JSON; send what is typed in binary frames.' };
  }
  const result = Control.safeParse(value);
  if (result.success) return result.data;
  return {
    type: 'error',
    error: `Send {"type":"resize","columns":1-1000,"rows":1-1000} or {"type":"signal","signal":"${signals.join('|')}"}.`,
  };
}
