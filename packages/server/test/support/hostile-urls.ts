/** Host names that the tests resolve themselves, each time with the next answer (the last one stays). */
export const hostileNames: Record<string, string[][]> = {
  'inside.example.com': [['10.0.0.1']],
  'loop.example.com': [['127.0.0.1']],
  'mixed.example.com': [['93.184.216.1', '127.0.0.1']],
  'metadata.google.internal': [['169.254.169.254']],
  'six.example.com': [['::ffff:127.0.0.1']],
  'xn--bcher-kva.example': [['127.0.0.1']],
  localhost: [['127.0.0.1']],
};

/**
 * Hosts of URLs to which the service never connects, whoever writes them where. Each leads to this machine, its
 * networks or what a cloud keeps at a well-known address, in some form that some parser or resolver takes for it.
 */
export const hostileHosts = [
  // Loopback, as people and as parsers write it.
  '127.0.0.1',
  '127.1',
  '2130706433',
  '017700000001',
  '0177.0.0.1',
  '0x7f000001',
  '0x7f.0.0.1',
  '0x7f.1',
  '0',
  '0.0.0.0',
  '127.0.0.1.',
  '①②⑦.⓪.⓪.①',
  '127。0。0。1',
  '%31%32%37.0.0.1',
  // IPv6, and IPv4 in it: mapped, compatible, translated, NAT64, 6to4, Teredo.
  '[::1]',
  '[::]',
  '[::ffff:127.0.0.1]',
  '[::ffff:7f00:1]',
  '[::127.0.0.1]',
  '[::ffff:0:127.0.0.1]',
  '[64:ff9b::127.0.0.1]',
  '[64:ff9b::a9fe:a9fe]',
  '[64:ff9b:1::1]',
  '[2002:7f00:1::]',
  '[2002:a9fe:a9fe::]',
  '[2001:0:7f00:1::]',
  '[fe80::1]',
  '[fd00::1]',
  '[fec0::1]',
  '[ff02::1]',
  // Private networks, shared address space, and what clouds keep at well-known addresses.
  '10.0.0.1',
  '172.16.0.1',
  '192.168.0.1',
  '100.64.0.1',
  '169.254.169.254',
  '2852039166',
  '0xa9fea9fe',
  '169.254.170.2',
  '168.63.129.16',
  '100.100.100.200',
  '[fd00:ec2::254]',
  '192.0.0.192',
  '198.18.0.1',
  '224.0.0.1',
  '255.255.255.255',
  // Names that lead there, one of them beside a public address; with the dot of the root; in letters of another script.
  'inside.example.com',
  'loop.example.com',
  'LOOP.example.com',
  'loop.example.com.',
  'mixed.example.com',
  'metadata.google.internal',
  'six.example.com',
  'bücher.example',
  'localhost',
  'localhost.',
];

/** Whole URLs that say two things at once, or hold what no URL of ours may hold. `PORT` is that of a listener. */
const hostileUrls = [
  'SCHEME://user:password@93.184.216.1:PORT/',
  'SCHEME://93.184.216.1:PORT@127.0.0.1:PORT/',
  'SCHEME://127.0.0.1:PORT#@93.184.216.1/',
  'SCHEME://127.0.0.1:PORT\\@93.184.216.1/',
  'SCHEME://93.184.216.1\\@127.0.0.1:PORT/',
  'SCHEME://127.0.0.1:PORT?@93.184.216.1/',
  'SCHEME:127.0.0.1:PORT/',
  'SCHEME:///127.0.0.1:PORT/',
  'SCHEME://127.0.0.1:0PORT/',
  'SCHEME://127.0.0.1:99999/',
  'SCHEME://127.0.0.1\t:PORT/',
  'SCHEME://127.0.0.1\r\nHost: x:PORT/',
  ' SCHEME://127.0.0.1:PORT/',
  '//127.0.0.1:PORT/',
  'file:///etc/passwd',
  'ftp://127.0.0.1:PORT/',
  'gopher://127.0.0.1:PORT/_x',
  'ssh://127.0.0.1:PORT/',
  'git://127.0.0.1:PORT/',
  'unix:///run/berth/control.sock',
  'data:text/plain,x',
  'javascript:alert(1)',
  'ext::sh -c touch% /tmp/x',
  '--upload-pack=touch /tmp/x',
];

export const urlsFor = (scheme: string, port: number, hosts: readonly string[] = hostileHosts): string[] => [
  ...hosts.map((host) => `${scheme}://${host}:${port}/x`),
  ...hostileUrls.map((url) => url.replaceAll('SCHEME', scheme).replaceAll('PORT', String(port))),
];
