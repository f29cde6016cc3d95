import { execIn } from './agents.ts';
import type { World } from './world.ts';

/** Shell scripts that take what they can get; each goes on until it is killed, or its sandbox is. */
export const attacks: Record<string, string[]> = {
  CPU: ['for i in 1 2 3 4 5 6 7 8; do while :; do :; done & done; wait'],
  memory: ['while :; do perl -e \'push @a, "x" x 1048576 while 1\'; done'],
  processes: [
    'perl -e \'$SIG{CHLD} = "IGNORE"; while (1) { $p = fork; if (defined $p && !$p) { exit if rand() < 0.5; sleep 60; exit } }\'',
  ],
  disk: [
    'cd /workspace; while :; do rm -f fill; dd if=/dev/zero of=fill bs=1M count=100000 conv=fsync; done',
  ],
  output: Array.from({ length: 4 }, () => 'yes hostile'),
  connections: [
    connect(
      'my ($h, $p) = $ENV{HTTP_PROXY} =~ m{//(.*):(\\d+)}; IO::Socket::INET->new(PeerAddr => $h, PeerPort => $p)',
      'CONNECT 10.0.0.1:443 HTTP/1.1',
    ),
    connect('IO::Socket::UNIX->new(Peer => "/run/berth/gateway.sock")', 'GET /nothing HTTP/1.1'),
  ],
};

/** Keeps as many connections open as it gets, and opens a new one for each that is closed. */
function connect(open: string, line: string): string {
  const head = `${line}\\r\\nHost: x\\r\\n\\r\\n`;
  return `exec perl -MIO::Socket -e 'while (1) { my $s = do { ${open} }; if ($s) { print $s "${head}"; $s->flush; push @all, $s } shift @all if @all > 300 }'`;
}

export interface Hostility {
  /** Resolves once all of it has ended. */
  end(): Promise<void>;
}

const PAUSE_MS = 50;
const SCRIPT_MS = 60_000;

/** Runs scripts in an agent's sandbox, and runs them anew when they or the sandbox end. */
export function beHostile(world: World, agentId: string, scripts: readonly string[]): Hostility {
  let isOver = false;
  const persist = async (script: string): Promise<void> => {
    while (!isOver) {
      // A sandbox that was ended for its disk, or has no process left for a command, refuses: try again.
      await execIn(world, agentId, ['sh', '-c', script], SCRIPT_MS).catch(() => null);
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
    }
  };
  const all = scripts.map(persist);
  return {
    async end() {
      isOver = true;
      await world.client.json('POST', `/sandbox/${agentId}/kill`);
      await Promise.all(all);
    },
  };
}
