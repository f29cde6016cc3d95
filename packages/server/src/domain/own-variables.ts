/** What the launch contract sets for every sandbox (docs/design/sandbox-launch.md); `PWD` is set by bubblewrap. */
const launchVariables = ['PATH', 'HOME', 'USER', 'LANG', 'PWD'];

const proxyVariables = ['HTTP_PROXY', 'HTTPS_PROXY', 'ALL_PROXY', 'NO_PROXY'];

/** What the launcher gives to every program in a sandbox: the ways to the outside and to the models. */
const launcherVariables = [
  ...proxyVariables,
  ...proxyVariables.map((name) => name.toLowerCase()),
  'NODE_USE_ENV_PROXY',
  'ANTHROPIC_BASE_URL',
  'ANTHROPIC_API_KEY',
  'ANTHROPIC_AUTH_TOKEN',
  'OPENAI_BASE_URL',
  'OPENAI_API_KEY',
  'GOOGLE_GEMINI_BASE_URL',
  'GEMINI_API_KEY',
];

const always = new Set([...launchVariables, ...launcherVariables]);

/** By which programs find the authority of a sandbox. They are set only where an agent has brokered secrets. */
export const authorityVariables = [
  'NODE_EXTRA_CA_CERTS',
  'DENO_CERT',
  'SSL_CERT_FILE',
  'REQUESTS_CA_BUNDLE',
  'GIT_SSL_CAINFO',
  'CURL_CA_BUNDLE',
  'PIP_CERT',
  'AWS_CA_BUNDLE',
  'CARGO_HTTP_CAINFO',
] as const;

export type AuthorityVariable = (typeof authorityVariables)[number];

const authority = new Set<string>(authorityVariables);

export const isAuthorityVariable = (name: string): boolean => authority.has(name);

/**
 * Whether the service sets a variable of this name itself, in every sandbox: a secret of the name would never reach the
 * agent. All of `BERTH_` are settings of the launcher, which reads those that are not set as well.
 */
export const isOwnVariable = (name: string): boolean => always.has(name) || name.startsWith('BERTH_');
