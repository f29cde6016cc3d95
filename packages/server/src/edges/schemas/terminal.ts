import { z } from 'zod';
import { isId } from '../../domain/ids.ts';

const size = (fallback: number, description: string) =>
  z
    .string()
    .optional()
    .transform((value, context) => {
      if (value === undefined) return fallback;
      const number = /^\d{1,4}$/.test(value) ? Number(value) : 0;
      if (number >= 1 && number <= 1000) return number;
      context.addIssue({ code: 'custom', message: 'must be a whole number from 1 to 1000' });
      return z.NEVER;
    })
    .meta({ type: 'integer', minimum: 1, maximum: 1000, default: fallback, description });

export const terminalQuery = z.strictObject({
  columns: size(80, 'Width of a new terminal.'),
  rows: size(24, 'Height of a new terminal.'),
  term: z
    .string()
    .regex(/^[A-Za-z0-9._+-]{1,64}$/, 'must be the name of a terminal type')
    .optional()
    .transform((value) => value ?? 'xterm-256color')
    .meta({ type: 'string', default: 'xterm-256color', description: 'TERM of a new terminal.' }),
  terminalId: z
    .string()
    .refine(isId, 'must be the id that `opened` told')
    .optional()
    .transform((value) => value ?? null)
    .meta({ type: 'string', format: 'uuid', description: 'Comes back to a terminal that this key opened.' }),
  after: z
    .string()
    .regex(/^\d{1,15}$/, 'must be a number of bytes')
    .optional()
    .transform((value) => Number(value ?? 0))
    .meta({
      type: 'integer',
      default: 0,
      description:
        'How many bytes of its output the client has; what follows is sent again, as far as it is kept.',
    }),
});
