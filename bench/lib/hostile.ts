import { execIn } from './agents.ts';
import { watchDeeds } from './deeds.ts';
import type { Deed } from './deeds.ts';
import type { World } from './world.ts';

export interface Attack {
  /** Shell scripts that take what they can get; each goes on until it is killed, or its sandbox is. */
  scripts: string[];
  /** The same for a sandbox that does all of it at once: they leave each other processes and processors. */
  together?: string[];
  /** How it is known that it acts. */
  deed: Deed;
}

export const attacks: Record<string, Attack> = {
  CPU: {
    scripts: ['for i in 1 2 3 4 5 6 7 8; do while :; do :; done & done; wait'],
    together: ['for i in 1 2 3 4 5 6 7 8; do nice -n 19 sh -c "while :; do :; done" & done; wait'],
    deed: { cpuMs: 300, processes: 8 },
  },
  memory: {
    scripts: ['while :; do perl -e \'push @a, "x" x 1048576 while 1\'; done'],
    // A shell would end where it cannot fork.
    together: [
      'exec perl -e \'while (1) { $p = fork; if (!defined $p) { select undef, undef, undef, 0.02; next } if (!$p) { push @a, "x" x 1048576 while 1 } waitpid $p, 0 }\'',
    ],
    deed: { memoryMb: 256 },
  },
  processes: {
    scripts: [
      'perl -e \'$SIG{CHLD} = "IGNORE"; while (1) { $p = fork; if (defined $p && !$p) { exit if rand() < 0.5; sleep 60; exit } }\'',
    ],
    // Where no process is left it waits for a moment, so that what the kernel killed of the others can begin again.
    together: [
      'exec perl -e \'$SIG{CHLD} = "IGNORE"; while (1) { $p = fork; if (!defined $p) { select undef, undef, undef, 0.05; next } if (!$p) { exit if rand() < 0.5; sleep 2 + rand 5; exit } }\'',
    ],
    deed: { processes: 100 },
  },
  disk: {
    scripts: [
      'cd /workspace; while :; do rm -f fill; dd if=/dev/zero of=fill bs=1M count=100000 conv=fsync; done',
    ],
    // One process, of the same name: it forks for nothing.
    together: [
      'cd /workspace; exec perl -MIO::Handle -e \'$0 = "dd"; $SIG{XFSZ} = "IGNORE"; $x = "\\0" x 1048576; while (1) { open F, ">", "fill" or next; 1 while syswrite F, $x; F->sync; close F; unlink "fill" }\'',
    ],
    deed: { ddCpuMs: 40 },
  },
  output: { scripts: Array.from({ length: 4 }, () => 'yes hostile'), deed: { readMb: 4 } },
  connections: {
    scripts: [
      connect(
        'my ($h, $p) = $ENV{HTTP_PROXY} =~ m{//(.*):(\\d+)}; IO::Socket::INET->new(PeerAddr => $h, PeerPort => $p)',
        'CONNECT 10.0.0.1:443 HTTP/1.1',
      ),
      connect('IO::Socket::UNIX->new(Peer => "/run/berth/gateway.sock")', 'GET /nothing HTTP/1.1'),
    ],
    deed: { descriptors: 30 },
  },
};

/** Keeps as many connections open as it gets, of which half say nothing, and opens a new one for each that is closed. */
function connect(open: string, line: string): string {
  const head = `${line}\\r\\nHost: x\\r\\n\\r\\n`;
  return `exec perl -MIO::Socket -e 'while (1) { my $s = do { ${open} }; if ($s) { print $s "${head}" if rand() < 0.5; $s->flush; push @all, $s } shift @all if @all > 300 }'`;
}

export interface Hostility {
  /**
   * Resolves once each attack is seen to act, or after a while with what was not seen: attacks of one sandbox take from each
   * other what they need. Rejects when none of them acts.
   */
  idle(): Promise<Attack[]>;
  /** Resolves once all of it has ended. */
  end(): Promise<void>;
}

const PAUSE_MS = 50;
const SCRIPT_MS = 60_000;

/** Runs attacks in an agent's sandbox, and runs their scripts anew when they or the sandbox end. */
export function beHostile(world: World, agentId: string, of: readonly Attack[]): Hostility {
  const deeds = watchDeeds(world.service.pid);
  const outcomes: string[] = [];
  let isOver = false;
  const persist = async (script: string): Promise<void> => {
    while (!isOver) {
      // A sandbox that was ended for its disk, or has no process left for a command, refuses: try again.
      const outcome = await execIn(world, agentId, ['sh', '-c', script], SCRIPT_MS).then(
        ({ exitCode, stderr }) => `exit ${exitCode} ${stderr.slice(0, 200)}`,
        String,
      );
      outcomes.push(outcome);
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
    }
  };
  const all = of.flatMap((one) => (of.length > 1 && one.together) || one.scripts).map(persist);
  const told = (idle: Attack[]) => {
    const wanted = idle.map(({ deed }) => JSON.stringify(deed)).join(', ');
    return `${wanted} more was looked for. ${outcomes.length} scripts ended, the last: ${outcomes.slice(-4).join('; ')}`;
  };
  return {
    async idle() {
      const missing = await deeds.missing(of.map(({ deed }) => deed));
      const idle = of.filter(({ deed }) => missing.includes(deed));
      if (idle.length === of.length) throw new Error(`An attack did not act: ${told(idle)}`);
      if (idle.length > 0) process.stderr.write(`  Not seen to act: ${told(idle)}\n`);
      return idle;
    },
    async end() {
      isOver = true;
      await world.client.json('POST', `/sandbox/${agentId}/kill`);
      await Promise.all(all);
    },
  };
}
