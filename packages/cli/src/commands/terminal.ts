import { setTimeout as delay } from 'node:timers/promises';
import { terminalAddress } from '@berth/sdk';
import { exitCodes, UsageError, type Command, type Context } from '../command.ts';
import { findAgent } from '../find-agent.ts';

interface Told {
  type: 'opened' | 'exit' | 'error';
  terminalId: string;
  offset: number;
  lostBytes: number;
  exitCode: number | null;
}

/** How a connection ended: the shell's exit, or that it may be tried again. */
type End = { exitCode: number } | 'lost' | 'refused';

const TRIES = 8;

/** Closes after which a connection is not tried again (docs/sandbox-api.md). */
const farewells: Record<number, string> = {
  4001: 'another connection has taken the terminal over',
  4002: 'the key or the agent is no more',
};

export const terminal: Command = {
  name: 'sandbox terminal',
  usage: '<agent>',
  summary: 'Open a shell in a sandbox',
  positionals: [1, 1],
  async run(context, [nameOrId]) {
    const { stdin } = process;
    if (!stdin.isTTY)
      throw new UsageError('a terminal is needed here; for scripts there is: berth sandbox exec');
    const agent = await findAgent(context, nameOrId!);
    const session = { terminalId: null as string | null, seen: 0 };
    stdin.setRawMode(true);
    stdin.resume();
    try {
      for (let tries = 0; tries < TRIES; tries += 1) {
        const before = session.seen;
        const end = await connection(context, agent.id, session);
        if (end === 'refused') return explain(context, agent.id);
        if (end !== 'lost') return end.exitCode;
        if (session.seen > before) tries = 0;
        await delay(Math.min(200 * 2 ** tries, 5_000));
      }
      context.note('\r\nberth: the connection was lost\r\n');
      return exitCodes.failed;
    } finally {
      stdin.setRawMode(false);
      stdin.pause();
    }
  },
};

/** A WebSocket tells no status; the same call without an upgrade does, by its error. */
async function explain(context: Context, agentId: string): Promise<number> {
  await context.client.sandboxes.start(agentId);
  context.note('berth: the terminal could not be opened\r\n');
  return exitCodes.failed;
}

function connection(
  context: Context,
  agentId: string,
  session: { terminalId: string | null; seen: number },
): Promise<End> {
  const { stdin, stdout } = process;
  const size = { columns: stdout.columns || 80, rows: stdout.rows || 24 };
  const query =
    session.terminalId === null
      ? { ...size, term: process.env['TERM'] ?? 'xterm-256color' }
      : { terminalId: session.terminalId, after: session.seen };
  const { url, protocols } = terminalAddress({ baseUrl: context.url, apiKey: context.key }, agentId, query);
  const socket = new WebSocket(url, protocols);
  socket.binaryType = 'arraybuffer';
  const type = (bytes: Buffer) => socket.readyState === WebSocket.OPEN && socket.send(bytes);
  const resize = () =>
    socket.readyState === WebSocket.OPEN &&
    socket.send(JSON.stringify({ type: 'resize', columns: stdout.columns || 80, rows: stdout.rows || 24 }));
  stdin.on('data', type);
  stdout.on('resize', resize);
  return new Promise((resolve) => {
    let end: End = session.terminalId === null ? 'refused' : 'lost';
    socket.addEventListener('message', ({ data }) => {
      if (typeof data !== 'string') {
        const bytes = Buffer.from(data as ArrayBuffer);
        session.seen += bytes.length;
        return context.out(bytes);
      }
      const told = JSON.parse(data) as Told;
      if (told.type === 'exit') end = { exitCode: told.exitCode ?? exitCodes.failed };
      if (told.type !== 'opened') return;
      end = 'lost';
      session.terminalId = told.terminalId;
      session.seen = told.offset;
      resize();
    });
    socket.addEventListener('close', ({ code }) => {
      stdin.off('data', type);
      stdout.off('resize', resize);
      const farewell = farewells[code];
      if (farewell !== undefined) {
        context.note(`\nberth: ${farewell}\n`);
        end = { exitCode: exitCodes.failed };
      }
      resolve(end);
    });
    socket.addEventListener('error', () => {});
  });
}
