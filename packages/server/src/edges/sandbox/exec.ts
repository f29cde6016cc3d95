import { RESPONSE_ALREADY_SENT as alreadySent } from '@hono/node-server/utils/response';
import type { z } from 'zod';
import { requireEdit } from '../../domain/access.ts';
import { DomainError } from '../../domain/errors.ts';
import { limits } from '../../domain/limits.ts';
import { SandboxControlError } from '../../domain/ports/sandbox-control.ts';
import type { ExecEnd, ExecInput, StoredAnswer } from '../../services/api.ts';
import type { Answer } from '../http/answer.ts';
import { errorBody } from '../http/errors.ts';
import { given } from '../http/given.ts';
import { idempotencyKey, requestHash, store, storeRefusal } from '../http/idempotency.ts';
import type { Call } from '../http/route.ts';
import { route } from '../http/route.ts';
import { statusOf } from '../http/status.ts';
import { invalidRequest } from '../http/validate.ts';
import { ExecAnswer, ExecCreate } from '../schemas/sandbox.ts';
import * as example from '../schemas/sandbox-examples.ts';
import { wantsStream } from '../v1/events.ts';
import { createOutput, type Encoding } from './output.ts';

type ExecCall = Call<{ agentId: string }, unknown, z.output<typeof ExecCreate>>;

function inputOf({ body }: ExecCall): ExecInput {
  const { command, env, cwd, stdin, timeoutMs = limits.execTimeoutDefaultMs } = body;
  if (cwd !== undefined && !cwd.startsWith('/'))
    throw invalidRequest([{ path: 'cwd', message: 'must be absolute, such as /workspace' }]);
  if (command[0] === '') throw invalidRequest([{ path: 'command.0', message: 'must name a program' }]);
  const bytes = stdin === undefined ? undefined : stdinOf(stdin, body.encoding ?? 'utf-8');
  return given({ command, env, cwd, stdin: bytes, timeoutMs }) as ExecInput;
}

function stdinOf(text: string, encoding: Encoding): Buffer {
  if (encoding === 'utf-8') return Buffer.from(text);
  if (/^[A-Za-z0-9+/]*={0,2}$/.test(text) && text.length % 4 === 0) return Buffer.from(text, 'base64');
  throw invalidRequest([{ path: 'stdin', message: 'must be base64, as the encoding says' }]);
}

/** A client that goes away ends nothing here: sent again with the same Idempotency-Key, it gets the answer. */
async function whole(call: ExecCall): Promise<Answer> {
  const output = createOutput(call.body.encoding ?? 'utf-8', limits.execOutputBytes);
  const input = inputOf(call);
  const never = new AbortController().signal;
  const end = await call.services.sandboxExec.exec(
    call.caller,
    call.params.agentId,
    input,
    async (stream, bytes) => output.add(stream, bytes),
    never,
  );
  return { status: 200, body: { ...end, ...output.end() } };
}

interface Watched {
  /** What is kept for a repeated request: the whole. */
  answer: Answer;
  /** Tells the client the end. To be called once the answer is kept: whoever has seen the end may ask for it again. */
  finish(): void;
}

/** A client that goes away ends the command: who watches it steers it. */
async function streamed(call: ExecCall): Promise<Watched> {
  const encoding = call.body.encoding ?? 'utf-8';
  const output = createOutput(encoding, limits.execOutputBytes);
  const input = inputOf(call);
  const gone = call.gone();
  return new Promise<Watched>((resolve, reject) => {
    call
      .streamText(async (sink) => {
        let begun = (): void => {};
        let failed: (error: unknown) => void = () => {};
        const started = new Promise<void>((yes, no) => ([begun, failed] = [yes, no]));
        let hasBegun = false;
        const onStart = () => {
          hasBegun = true;
          begun();
        };
        const run = call.services.sandboxExec.exec(
          call.caller,
          call.params.agentId,
          { ...input, onStart },
          async (stream, bytes) => {
            output.add(stream, bytes);
            for (const data of output.text(stream, bytes)) sink.send(stream, { data, encoding });
            await sink.drained();
          },
          gone,
        );
        void run.then(
          (end: ExecEnd) => {
            for (const stream of ['stdout', 'stderr'] as const)
              for (const data of output.rest(stream)) sink.send(stream, { data, encoding });
            const finish = () => {
              sink.send('exit', end);
              sink.end();
            };
            resolve({ answer: { status: 200, body: { ...end, ...output.end() } }, finish });
          },
          (error: unknown) => {
            // Before it has begun the client can still be told by a status; after it the stream breaks off.
            if (hasBegun) sink.end();
            failed(error);
            reject(error as Error);
          },
        );
        await started;
        return () => {};
      })
      .catch(reject);
  });
}

export const execRoutes = [
  route({
    id: 'execInSandbox',
    method: 'post',
    path: '/sandbox/{agentId}/exec',
    tag: 'Sandboxes',
    access: 'edit',
    summary: 'Run a command',
    description:
      'Starts the sandbox when it does not run. The answer comes when the command has ended, with all that it wrote; a client that goes away meanwhile ends nothing, and gets the answer when it sends the request again with the same `Idempotency-Key`. When the service was killed meanwhile, the same request gets 409 `idempotency_interrupted` instead: the command may have begun, and is not run again. With `Accept: text/event-stream` its output comes as it is written, in events `stdout` and `stderr`, and `exit` at the end; there a client that goes away ends the command.',
    body: ExecCreate,
    bodyExample: example.exec,
    idempotency: 'own',
    errors: ['conflict', 'too_many_sandboxes'],
    replies: {
      200: {
        description: 'The command has ended; or the stream of its output.',
        schema: ExecAnswer,
        example: example.execAnswer,
        streamExample: example.execStream,
      },
    },
    async handler(call) {
      // What is wrong with the request is told only to whoever may make it.
      await call.services.agents.get(call.caller, call.params.agentId);
      requireEdit(call.caller);
      const key = idempotencyKey(call.header('idempotency-key'));
      const isStream = call.canStream && wantsStream(call.header('accept'));
      const work = async (): Promise<Watched> =>
        isStream ? streamed(call) : { answer: await whole(call), finish: () => {} };
      if (key === null) {
        const { answer, finish } = await work();
        finish();
        return isStream ? alreadySent : (answer as never);
      }
      let ours: Watched | null = null;
      const hash = requestHash(`POST /sandbox/${call.params.agentId}/exec`, call.body);
      const once = call.services.idempotency.once(call.caller, key, hash, {
        lease: true,
        async run() {
          ours = await work();
          return store(ours.answer);
        },
        refusal: storeExecRefusal,
      });
      // The command has ended even where its answer could not be kept, and the client is told so.
      const kept = await once.finally(() => ours?.finish());
      if (isStream && ours) return alreadySent;
      if (kept.replayed) call.head['Idempotent-Replayed'] = 'true';
      return answerOf(kept.answer) as never;
    },
  }),
];

/** A command that may have begun, as its sandbox ended while it was told of it, is not begun by the same request again. */
function storeExecRefusal(error: unknown): StoredAnswer | null {
  const mayHaveBegun =
    error instanceof DomainError &&
    error.cause instanceof SandboxControlError &&
    error.cause.code === 'gone' &&
    !error.cause.isUntold;
  return mayHaveBegun ? store({ status: statusOf[error.code], body: errorBody(error) }) : storeRefusal(error);
}

function answerOf(stored: StoredAnswer): Answer {
  return { status: stored.status, headers: stored.headers, body: JSON.parse(stored.body.toString()) };
}
