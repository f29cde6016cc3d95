import { z } from 'zod';

/** Shapes of the Agent Communication Protocol 0.2 (its OpenAPI document, `components.schemas`). */

export interface MessagePart {
  name?: string;
  content_type: string;
  content?: string;
  content_encoding?: 'plain' | 'base64';
  content_url?: string;
}

export interface Message {
  role: string;
  parts: MessagePart[];
  created_at: string;
  completed_at?: string;
}

export type RunStatus =
  | 'created'
  | 'in-progress'
  | 'awaiting'
  | 'cancelling'
  | 'cancelled'
  | 'completed'
  | 'failed';

export interface Run {
  agent_name: string;
  session_id: string;
  run_id: string;
  status: RunStatus;
  await_request?: Record<string, unknown>;
  output: Message[];
  error?: ErrorBody;
  created_at: string;
  finished_at?: string;
}

export interface ErrorBody {
  code: 'server_error' | 'invalid_input' | 'not_found';
  message: string;
  data?: Record<string, unknown>;
}

export type Event =
  | { type: 'message.created' | 'message.completed'; message: Message }
  | { type: 'message.part'; part: MessagePart }
  | { type: 'generic'; generic: Record<string, unknown> }
  | {
      type:
        | 'run.created'
        | 'run.in-progress'
        | 'run.awaiting'
        | 'run.completed'
        | 'run.failed'
        | 'run.cancelled';
      run: Run;
    };

const nullish = <S extends z.ZodType>(schema: S) => schema.nullish().transform((value) => value ?? undefined);

/** Fields that are not known are left out, as the protocol's own server does. */
const partInput = z.object({
  name: nullish(z.string()),
  content_type: nullish(z.string()).transform((type) => type ?? 'text/plain'),
  content: nullish(z.string()),
  content_encoding: nullish(z.enum(['plain', 'base64'])),
  content_url: nullish(z.string()),
});

const messageInput = z.object({
  role: z
    .string()
    .regex(/^(user|agent(\/[a-zA-Z0-9_-]+)?)$/, 'must be user, agent or agent/<name>')
    .optional()
    .transform((role) => role ?? 'user'),
  parts: z.array(partInput).min(1),
});
export type MessageInput = z.output<typeof messageInput>;

const mode = z
  .enum(['sync', 'async', 'stream'])
  .optional()
  .transform((value) => value ?? 'sync');
export type Mode = z.output<typeof mode>;

const sessionId = z.string().regex(/^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$/, 'must be a UUID');

export const runCreate = z.object({
  agent_name: z.string().min(1),
  session_id: nullish(sessionId),
  session: nullish(z.object({ id: sessionId, history: z.array(z.string()).optional() })),
  input: z.array(messageInput).min(1),
  mode,
});

const awaitResume = z.looseObject({
  option_id: nullish(z.string()),
  message: nullish(z.looseObject({ parts: nullish(z.array(partInput)) })),
});
export type AwaitResume = z.output<typeof awaitResume>;

export const runResume = z.object({
  run_id: nullish(z.string()),
  await_resume: awaitResume,
  mode,
});

export const agentsQuery = z.object({
  limit: z.coerce.number().int().min(1).max(1000).default(10),
  offset: z.coerce.number().int().min(0).default(0),
});
