import { methods } from '@agentclientprotocol/sdk';
import { message, sse, type A2aWorld } from './a2a-world.ts';
import { acpClient, acpStream, place, type AcpClient, type Transport } from './acp-client.ts';
import { until } from './until.ts';

/** What a stream or an answer tells, read into. */
// oxlint-disable-next-line no-explicit-any -- tests read into answers of all surfaces
type Told = any;

/** A run as its five surfaces name it: the same two ids on each. */
export interface Begun {
  runId: string;
  conversationId: string;
  /** What the surface that began it has heard when the run is over. */
  heard(): Promise<Heard>;
  /** By the words of the surface that began it. */
  cancel(): Promise<void>;
}

export interface Heard {
  text: string;
  end: 'completed' | 'cancelled' | 'failed';
}

export const surfaces = [
  'REST',
  'A2A over JSON-RPC',
  'A2A over HTTP',
  'ACP over WebSocket',
  'ACP over HTTP',
  'OpenAI',
] as const;
export type Surface = (typeof surfaces)[number];

/** The same agent by every surface, with the field's client where there is one for a stream that others began. */
export async function surfaceClients(world: A2aWorld) {
  const { service, agent, origin } = world;
  const bearer = { authorization: `Bearer ${service.key}` };
  const connections: AcpClient[] = [];

  async function acp(transport: Transport): Promise<AcpClient> {
    const client = await acpClient(acpStream(transport, service.port, agent.id, service.key));
    connections.push(client);
    return client;
  }

  const open = (path: string, init: RequestInit = {}, base = origin) =>
    world.fetch(`${base}${path}`, {
      ...init,
      headers: { ...bearer, 'a2a-version': '1.0', 'content-type': 'application/json', ...init.headers },
    });

  async function rest(runId: string): Promise<Heard> {
    const response = await fetch(`${service.url}/v1/runs/${runId}/events`, {
      headers: { ...bearer, accept: 'text/event-stream' },
    });
    let text = '';
    let end: Heard['end'] = 'failed';
    for await (const { data: event } of sse(response)) {
      if (event.type === 'message.delta') text += event.data.text;
      if (event.type === 'run.completed') end = 'completed';
      if (event.type === 'run.cancelled') end = 'cancelled';
    }
    return { text, end };
  }

  async function a2a(response: Response, unwrap: (data: Told) => Told): Promise<Heard> {
    let text = '';
    let state = '';
    for await (const { data } of sse(response)) {
      const event = unwrap(data);
      if (event.task) {
        state = event.task.status.state;
        text = (event.task.artifacts ?? []).flatMap(partTexts).join('');
      }
      if (event.artifactUpdate) {
        const piece = partTexts(event.artifactUpdate.artifact).join('');
        text = event.artifactUpdate.append ? text + piece : piece;
      }
      if (event.statusUpdate) state = event.statusUpdate.status.state;
    }
    return { text, end: ends[state] ?? 'failed' };
  }

  async function openai(response: Response): Promise<Heard> {
    let text = '';
    let end: Heard['end'] = 'failed';
    for await (const { data } of sse(response)) {
      if (data.type === 'response.output_text.delta') text += data.delta;
      if (data.type === 'response.completed') end = 'completed';
      if (data.type === 'response.failed')
        end = data.response.status === 'cancelled' ? 'cancelled' : 'failed';
    }
    return { text, end };
  }

  /** A turn that another began ends for a watcher with an update that names the run and says how it ended. */
  async function acpWatch(client: AcpClient, conversationId: string, runId: string): Promise<Heard> {
    let ended: { status: Heard['end'] } | undefined;
    await until('the session has told the end', () => {
      ended = client.updates
        .filter(({ update }) => update.sessionUpdate === 'session_info_update')
        .map(({ update }) => (update._meta?.['berth.dev'] as Told)?.run)
        .find((run) => run?.id === runId);
      return ended !== undefined;
    });
    return { text: client.text(conversationId), end: ended!.status };
  }

  const watchByAcp =
    (transport: Transport) =>
    async ({ conversationId, runId }: Begun) => {
      const client = await acp(transport);
      await client.agent.request(methods.agent.session.load, { sessionId: conversationId, ...place });
      return () => acpWatch(client, conversationId, runId);
    };

  const rpcStream = (method: string, params: object) =>
    open('/a2a', { method: 'POST', body: JSON.stringify({ jsonrpc: '2.0', id: 1, method, params }) });

  /** Watches a run that somebody else began. Resolves when the watch has begun. */
  const watch: Record<Surface, (begun: Begun) => Promise<() => Promise<Heard>>> = {
    async REST({ runId }) {
      const heard = rest(runId);
      return () => heard;
    },
    async 'A2A over JSON-RPC'({ runId }) {
      const heard = a2a(await rpcStream('SubscribeToTask', { id: runId }), ({ result }) => result);
      return () => heard;
    },
    async 'A2A over HTTP'({ runId }) {
      const heard = a2a(await open(`/a2a/http/tasks/${runId}:subscribe`), (data) => data);
      return () => heard;
    },
    'ACP over WebSocket': watchByAcp('websocket'),
    'ACP over HTTP': watchByAcp('http'),
    async OpenAI({ runId }) {
      const heard = openai(await open(`/v1/responses/${runId}?stream=true`));
      return () => heard;
    },
  };

  const begin: Record<Surface, (words: string) => Promise<Begun>> = {
    async REST(words) {
      const body = { agentId: agent.id, content: words };
      const sent = await service.api('POST', '/api/v1/chat/send', body, { prefer: 'respond-async' });
      const { runId, conversationId } = sent.body;
      return {
        runId,
        conversationId,
        heard: () => rest(runId),
        cancel: async () => void (await service.api('POST', `/v1/runs/${runId}/cancel`, {})),
      };
    },
    'A2A over JSON-RPC': (words) =>
      begunByA2a(
        (params) => rpcStream('SendStreamingMessage', params),
        ({ result }) => result,
        words,
        (id) => world.rpc('CancelTask', { id }),
      ),
    'A2A over HTTP': (words) =>
      begunByA2a(
        (params) => open('/a2a/http/message:stream', { method: 'POST', body: JSON.stringify(params) }),
        (data) => data,
        words,
        (id) => world.request('POST', `/a2a/http/tasks/${id}:cancel`, { body: {} }),
      ),
    'ACP over WebSocket': (words) => begunByAcp('websocket', words),
    'ACP over HTTP': (words) => begunByAcp('http', words),
    async OpenAI(words) {
      const body = JSON.stringify({ model: agent.id, input: words, stream: true });
      const response = await open('/v1/responses', { method: 'POST', body });
      const runId = response.headers.get('x-run-id')!;
      const heard = openai(response);
      return {
        runId,
        conversationId: response.headers.get('x-conversation-id')!,
        heard: () => heard,
        cancel: async () => void (await open(`/v1/responses/${runId}/cancel`, { method: 'POST' })),
      };
    },
  };

  async function begunByAcp(transport: Transport, words: string): Promise<Begun> {
    const client = await acp(transport);
    const conversationId = await client.open();
    const prompted = client.prompt(conversationId, words);
    let runId = '';
    await until('the prompt is a run', async () => {
      const { runs } = (await service.api('GET', `/v1/agents/${agent.id}/runs?limit=5`)).body;
      runId = runs.find((run: Told) => run.conversationId === conversationId)?.id ?? '';
      return runId !== '';
    });
    return {
      runId,
      conversationId,
      async heard() {
        const { stopReason } = await prompted;
        const end =
          stopReason === 'end_turn' ? 'completed' : stopReason === 'cancelled' ? 'cancelled' : 'failed';
        return { text: client.text(conversationId), end };
      },
      cancel: () => client.agent.notify(methods.agent.session.cancel, { sessionId: conversationId }),
    };
  }

  async function begunByA2a(
    send: (params: object) => Promise<Response>,
    unwrap: (data: Told) => Told,
    words: string,
    cancel: (id: string) => Promise<unknown>,
  ): Promise<Begun> {
    const ids = Promise.withResolvers<{ id: string; contextId: string }>();
    const heard = a2a(await send({ message: message(words) }), (data) => {
      const event = unwrap(data);
      if (event.task) ids.resolve(event.task);
      return event;
    });
    const { id, contextId } = await ids.promise;
    return {
      runId: id,
      conversationId: contextId,
      heard: () => heard,
      cancel: async () => void (await cancel(id)),
    };
  }

  return {
    begin,
    watch,

    close() {
      for (const client of connections) client.close();
    },
  };
}

const ends: Record<string, Heard['end']> = {
  TASK_STATE_COMPLETED: 'completed',
  TASK_STATE_CANCELED: 'cancelled',
};

function partTexts(artifact: { parts: { text?: string }[] }): string[] {
  return artifact.parts.map(({ text }) => text ?? '');
}
