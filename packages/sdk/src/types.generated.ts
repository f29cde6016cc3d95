// Generated from openapi.json by scripts/write-sdk-types.mjs; do not edit.

export interface Agent {
  /** Identifier of the agent. */
  id: string;
  /** Display name. */
  name: string;
  /** The agent's own address. */
  url: string;
  /** Free text; may be empty. */
  description: string;
  /** `<provider>/<model_name>` */
  model: string;
  /** The repository that the agent is made of. */
  gitUrl: string;
  /** The active deployment; null until a first one is ready. */
  deploymentId: string | null;
  /** Origins of pages that may speak to the agent at its own address; `*` stands for all. */
  allowedOrigins: string[];
  /** When it was created. ISO 8601, UTC, with milliseconds. */
  createdAt: string;
  /** When it was last changed. ISO 8601, UTC, with milliseconds. */
  updatedAt: string;
}

export interface AgentAnswer {
  agent: Agent;
}

export type AgentArray = Agent[];

export interface AgentCreate {
  /** 1 to 100 characters. */
  name: string;
  /** Up to 2000 characters. */
  description?: string;
  /** `<provider>/<model_name>`. The installation has a default. */
  model?: string;
  /** An https URL of a git repository. Without it the service makes one and holds it itself. */
  gitUrl?: string;
}

export interface AgentKeyCreate {
  /** 1 to 100 characters. */
  name: string;
}

export interface AgentPage {
  agents: Agent[];
  /** Pass it as `cursor` to get the next page; null at the end of the list. */
  nextCursor: string | null;
}

export interface AgentUpdate {
  /** 1 to 100 characters. */
  name?: string;
  /** Up to 2000 characters. */
  description?: string;
  /** `<provider>/<model_name>`. The installation has a default. */
  model?: string;
  /** An https URL of a git repository. Without it the service makes one and holds it itself. */
  gitUrl?: string;
  /** Up to 20 origins of pages, such as https://app.example.com, that may speak to the agent at its own address; `*` allows all. */
  allowedOrigins?: string[];
}

export interface ApiKey {
  /** Identifier of the key. */
  id: string;
  /** Name of the key. */
  name: string;
  /** The first characters of the key, enough to tell keys apart. */
  prefix: string;
  /** `use`: read and converse. `edit`: also change. Fixed at creation. */
  scope: "use" | "edit";
  /** `agent-bound`: one agent only. `org-bound`: the whole organisation. Fixed at creation. */
  binding: "agent-bound" | "org-bound";
  /** The agent that the key is bound to; null for an org-bound key. */
  agentId: string | null;
  /** When it was last used, within a minute; null when never. */
  lastUsedAt: string | null;
  /** When it stops working; null when it does not. */
  expiresAt: string | null;
  /** When it was created. ISO 8601, UTC, with milliseconds. */
  createdAt: string;
}

export interface ApiKeyCreate {
  /** 1 to 100 characters. */
  name: string;
  /** `use`: read and converse. `edit`: also change. Fixed at creation. */
  scope: "use" | "edit";
  /** `agent-bound`: one agent only. `org-bound`: the whole organisation. Fixed at creation. */
  binding: "agent-bound" | "org-bound";
  /** The agent of an `agent-bound` key; not for others. */
  agentId?: string;
  /** When the key shall stop working, in the future. */
  expiresAt?: string;
}

export interface ApiKeyMinted {
  key: ApiKey;
  /** The whole key. It is told this once and never again. */
  value: string;
}

export interface ApiKeyPage {
  keys: ApiKey[];
  /** Pass it as `cursor` to get the next page; null at the end of the list. */
  nextCursor: string | null;
}

export interface Artifact {
  /** The agent's own id of it, unique in its run. */
  artifactId: string;
  name: string | null;
  description: string | null;
  parts: Part[];
}

export interface ArtifactList {
  artifacts: Artifact[];
}

export interface Budget {
  /** A calendar day or month in UTC; with each one the budget begins anew. */
  period: "day" | "month";
  /** What may be spent in a period. US dollars as a decimal text. */
  limit: string;
  /** Messages and model calls are refused with `budget_exceeded`. */
  onExceeded: "reject";
  /** What has been spent in the present period. US dollars as a decimal text. */
  spent: string;
  /** What model calls that are under way may cost at most. US dollars as a decimal text. */
  reserved: string;
  /** When the present period ends. ISO 8601, UTC, with milliseconds. */
  resetsAt: string;
}

export interface BudgetAnswer {
  /** Null: nothing is capped. */
  budget: Budget | null;
}

export interface BudgetPut {
  /** A calendar day or month in UTC; with each one the budget begins anew. */
  period: "day" | "month";
  /** US dollars as a decimal text with at most 6 decimal places. `"0"` stops all work. */
  limit: string;
  /** Messages and model calls are refused with `budget_exceeded`. */
  onExceeded?: "reject";
}

export interface Channel {
  /** Identifier of the channel. */
  id: string;
  /** The agent that is reached by it. */
  agentId: string;
  /** Which kind of system it is for. */
  kind: "slack" | "email" | "github" | "gitlab" | "linear" | "telegram" | "discord" | "whatsapp" | "twilio" | "teams" | "googlechat" | "generic";
  /** What you called it. */
  name: string;
  /** A paused one answers as if it were not there. */
  status: "active" | "paused" | "error";
  /** Enter it at the provider. */
  webhookUrl: string;
  /** What the kind takes; see the guide to channels. */
  settings: Record<string, unknown>;
  /** Names of the credentials that are set; values are never shown. */
  credentialsSet: string[];
  /** In place of the provider's own API: private clouds, self-hosted servers, tests. Null: the provider's. */
  apiBaseUrl: string | null;
  lastEventAt: string | null;
  /** What was last wrong with what came in, in words. */
  lastError: string | null;
  /** When it was made. ISO 8601, UTC, with milliseconds. */
  createdAt: string;
}

export interface ChannelAnswer {
  channel: Channel;
}

export interface ChannelCreate {
  /** Which kind of system it is for. */
  kind: "slack" | "email" | "github" | "gitlab" | "linear" | "telegram" | "discord" | "whatsapp" | "twilio" | "teams" | "googlechat" | "generic";
  /** 1 to 100 characters. */
  name?: string;
  /** By name; null takes one back to its default. */
  settings?: Record<string, unknown>;
  /** By name, write-only; null takes one away. */
  credentials?: Record<string, unknown>;
  /** In place of the provider's own API: private clouds, self-hosted servers, tests. Null: the provider's. */
  apiBaseUrl?: string | null;
}

export interface ChannelPage {
  channels: Channel[];
  /** Pass it as `cursor` to get the next page; null at the end of the list. */
  nextCursor: string | null;
}

export interface ChannelRotateSend {
  /** The new secret, for kinds whose provider gives it. The one before still holds for 24 hours. */
  value?: string;
}

export interface ChannelTestSend {
  /** Such as `slack.message`, `slack.retry`, `email.received`; left out, the usual one of the kind. */
  event?: string;
  /** What the made-up person says. */
  text?: string;
  /** Whether the answer is sent to the provider too, to where the sample says that it came from. Left out: it stands in the conversation alone. */
  answer?: boolean;
}

export interface ChannelTested {
  /** What the provider would have been answered. */
  answer: {
    status: number;
    body: string;
  };
  /** False: the provider signs with a key that it alone has, so no signature was checked. */
  verified: boolean;
  /** What was stored. */
  events: InboundEvent[];
}

export interface ChannelUpdate {
  /** 1 to 100 characters. */
  name?: string;
  /** By name; null takes one back to its default. */
  settings?: Record<string, unknown>;
  /** By name, write-only; null takes one away. Those that the change would send to another place than before (another origin of apiBaseUrl, another mail service) have to be given again. */
  credentials?: Record<string, unknown>;
  /** In place of the provider's own API: private clouds, self-hosted servers, tests. Null: the provider's. */
  apiBaseUrl?: string | null;
}

export interface ChannelWithSecret {
  channel: Channel;
  /** The signing secret, when the service made it: shown this once. Null when the provider gives it. */
  secret: string | null;
}

export interface ChatAccepted {
  /** The agent. */
  agentId: string;
  /** The conversation. */
  conversationId: string;
  /** The run; see `Location`. */
  runId: string;
  /** `completed`, `failed` and `cancelled` are final. */
  status: "queued" | "running" | "awaiting_input" | "completed" | "failed" | "cancelled";
  message: null;
}

export interface ChatSend {
  /** The agent that receives the message. */
  agentId: string;
  /** The conversation to go on with; null or left out starts a new one. */
  conversationId?: string | null;
  /** The message text, 1 to 200000 characters; it may be empty when there are parts. */
  content: string;
  /** Files, data and links beside the text, at most 20. */
  parts?: PartSend[];
  /** An id of your own, kept with the message and told to the agent. */
  clientMessageId?: string;
  /** Kept with the message and told to the agent; at most 16384 characters. */
  metadata?: Record<string, unknown>;
  /** Answer with server-sent events. */
  stream?: boolean;
  /** When a run of the conversation is under way: wait for it (default), cancel it, or refuse with 409. */
  onBusy?: "enqueue" | "interrupt" | "reject";
}

export interface ChatSent {
  /** The agent. */
  agentId: string;
  /** The conversation; send it with the next message to go on. */
  conversationId: string;
  /** The run. */
  runId: string;
  /** `completed`, `failed` and `cancelled` are final. */
  status: "queued" | "running" | "awaiting_input" | "completed" | "failed" | "cancelled";
  /** The assistant's answer; null when the run failed or was cancelled. */
  message: Message | null;
  usage: Usage;
  /** Only when there is no message. */
  error?: RunError;
  /** What the agent made, if anything. */
  artifacts?: Artifact[];
}

export interface Conversation {
  /** Identifier of the conversation. */
  id: string;
  /** The agent. */
  agentId: string;
  /** The beginning of its first message. */
  title: string;
  /** Where it came from, such as `api`; `fork` when it is a copy of another one. */
  source: string;
  /** When it began. ISO 8601, UTC, with milliseconds. */
  createdAt: string;
  /** When its last message was written. ISO 8601, UTC, with milliseconds. */
  lastMessageAt: string;
}

export interface ConversationAnswer {
  conversation: Conversation;
}

export interface ConversationForkSend {
  /** A message of the conversation: its turn is the last one that is copied. All when left out. */
  messageId?: string;
  /** Another agent of the organisation, whose files become those of this one. Needs a key that may edit it. */
  toAgentId?: string;
  /** Of the fork; that of the conversation when left out. */
  title?: string;
}

export interface ConversationPage {
  conversations: Conversation[];
  /** Pass it as `cursor` to get the next page; null at the end of the list. */
  nextCursor: string | null;
}

export interface Deployment {
  /** Identifier of the deployment. */
  id: string;
  /** The agent. */
  agentId: string;
  /** The commit, 40 hex digits; null until the ref is resolved. */
  commit: string | null;
  /** The branch, tag or commit that was asked for. */
  ref: string;
  /** What made it. */
  source: "create" | "push" | "fetch" | "activate";
  status: "pending" | "ready" | "failed";
  /** Why it failed, in words for whoever deploys. */
  error: string | null;
  /** When it was made. ISO 8601, UTC, with milliseconds. */
  createdAt: string;
  /** When it was last made the active one; null when never. */
  activatedAt: string | null;
}

export interface DeploymentAnswer {
  deployment: Deployment;
}

export interface DeploymentCreate {
  /** A branch, a tag or a commit; the default branch when left out. */
  ref?: string;
}

export interface DeploymentPage {
  deployments: Deployment[];
  /** Pass it as `cursor` to get the next page; null at the end of the list. */
  nextCursor: string | null;
}

export interface Egress {
  /** `none`: nothing is reached. `list`: what `allow` and `presets` name. `open`: every public host. In every mode `deny` wins, and private, loopback, link-local and metadata addresses are not reached. */
  mode: "none" | "list" | "open";
  /** Rules: `<host>[:<port>][/tcp]`: `registry.example` (ports 80 and 443), `registry.example:8443`, `registry.example:*`, `*.example.org` (names below it), `203.0.113.7:443`, `[2001:db8::7]:443`, `203.0.113.0/24`. `/tcp` lets any protocol pass unread; without it only TLS that names the host, and HTTP, do. At most 200. */
  allow: string[];
  /** Rules of the same form; one without a port means every port. At most 200. Addresses hold for what names resolve to, too. */
  deny: string[];
  /** Hosts of well-known registries by name: `npm` (npm and Yarn packages), `pypi` (Python packages), `debian` (Debian packages), `ubuntu` (Ubuntu packages), `alpine` (Alpine packages), `crates` (Rust crates and toolchains), `go` (Go modules), `rubygems` (Ruby gems), `maven` (Maven Central), `nuget` (.NET packages), `packagist` (PHP packages), `node` (Node releases and headers), `github` (GitHub: git over https, the API, archives, raw files and releases), `gitlab` (GitLab.com: git over https and the API). */
  presets: string[];
  /** Lead programs that know no proxy to it as well, from the next start of the sandbox on. Needs a host that can (`transparentPossible`). */
  transparent: boolean;
  /** Whether `transparent` has an effect on this host. */
  transparentPossible: boolean;
  /** Nothing was set for this agent: it is the installation's default. */
  isDefault: boolean;
  /** When it was set; null when never. */
  updatedAt: string | null;
}

export interface EgressAnswer {
  egress: Egress;
}

export interface EgressPut {
  /** `none`: nothing is reached. `list`: what `allow` and `presets` name. `open`: every public host. In every mode `deny` wins, and private, loopback, link-local and metadata addresses are not reached. */
  mode: "none" | "list" | "open";
  /** Rules: `<host>[:<port>][/tcp]`: `registry.example` (ports 80 and 443), `registry.example:8443`, `registry.example:*`, `*.example.org` (names below it), `203.0.113.7:443`, `[2001:db8::7]:443`, `203.0.113.0/24`. `/tcp` lets any protocol pass unread; without it only TLS that names the host, and HTTP, do. At most 200. */
  allow?: string[];
  /** Rules of the same form; one without a port means every port. At most 200. Addresses hold for what names resolve to, too. */
  deny?: string[];
  /** Hosts of well-known registries by name: `npm` (npm and Yarn packages), `pypi` (Python packages), `debian` (Debian packages), `ubuntu` (Ubuntu packages), `alpine` (Alpine packages), `crates` (Rust crates and toolchains), `go` (Go modules), `rubygems` (Ruby gems), `maven` (Maven Central), `nuget` (.NET packages), `packagist` (PHP packages), `node` (Node releases and headers), `github` (GitHub: git over https, the API, archives, raw files and releases), `gitlab` (GitLab.com: git over https and the API). */
  presets?: string[];
  /** Lead programs that know no proxy to it as well, from the next start of the sandbox on. Needs a host that can (`transparentPossible`). */
  transparent?: boolean;
}

export interface EgressRefusal {
  /** What was asked for; empty when it could not be read. */
  host: string;
  /** 0 when it could not be read. */
  port: number;
  /** Also told to the program inside, in `X-Berth-Egress-Error`. */
  reason: "egress_off" | "not_listed" | "denied" | "address_literal" | "private_address" | "name_not_found" | "connect_failed" | "name_mismatch" | "name_missing" | "name_hidden" | "not_tls" | "bad_request" | "too_many_connections" | "timeout" | "placeholder_to_wrong_host" | "placeholder_not_replaced" | "upstream_certificate";
  /** The reason as a sentence. */
  message: string;
  /** How often. */
  count: number;
  /** When it was first refused. ISO 8601, UTC, with milliseconds. */
  firstAt: string;
  /** When it was last refused. ISO 8601, UTC, with milliseconds. */
  lastAt: string;
  /** A command that lets it through, or shows why not; null when none does. */
  remedy: string | null;
}

export interface EgressRefusalPage {
  refusals: EgressRefusal[];
  /** Pass it as `cursor` to get the next page; null at the end of the list. */
  nextCursor: string | null;
}

export interface EgressTraffic {
  /** The first day (UTC) that is counted. */
  since: string;
  /** The hosts with the most bytes, most first. */
  hosts: {
    host: string;
    /** Out of the sandbox. */
    sentBytes: number;
    /** Into the sandbox. */
    receivedBytes: number;
    connections: number;
  }[];
}

export interface Event {
  /** Counts from 1 inside its conversation, without a gap. */
  seq: number;
  /** One of `run.queued`, `run.started`, `run.awaiting_input`, `run.resumed`, `run.retrying`, `run.completed`, `run.failed`, `run.cancelled`, `message.created`, `message.delta`, `thought.delta`, `tool.started`, `tool.updated`, `tool.finished`, `permission.requested`, `permission.resolved`, `input.requested`, `input.resolved`, `artifact.updated`, `plan.updated`, `usage.recorded`. More may be added: ignore what you do not know. */
  type: string;
  /** When it happened. ISO 8601, UTC, with milliseconds. */
  at: string;
  /** Depends on the type; `runId` is always in it. */
  data: Record<string, unknown>;
}

export interface EventPage {
  events: Event[];
  /** Pass it as `cursor` to get the next page; null at the end of the list. */
  nextCursor: string | null;
  /** Whether there are more events in the direction that was read. */
  hasMore: boolean;
}

export interface ExecAnswer {
  /** Null when a signal ended it, or the sandbox ended. */
  exitCode: number | null;
  /** The signal that ended it. */
  signal: string | null;
  /** It was killed since it took longer than `timeoutMs`. */
  timedOut: boolean;
  /** Why the sandbox ended with the command; null when it did not. */
  sandboxEnd: {
    /** Out of memory, out of disk, or ended for another reason. */
    code: "sandbox_oom" | "sandbox_disk_full" | "sandbox_ended";
    /** A sentence that says why. */
    error: string;
  } | null;
  durationMs: number;
  stdout: string;
  stderr: string;
  /** `utf-8`: as text, what is none as U+FFFD. `base64`: the exact bytes. */
  encoding: "utf-8" | "base64";
  /** An output was longer than 1048576 bytes and is cut there; stream it to get all. */
  truncated: boolean;
}

export interface ExecCreate {
  /** The program and its arguments. No shell is between; say `["sh", "-c", "…"]` for one. */
  command: string[];
  /** The standard input, in `encoding`; none when left out. */
  stdin?: string;
  /** Variables beside the agent's own, over which they win. */
  env?: Record<string, unknown>;
  /** The folder to start in, absolute; `/workspace` when left out. */
  cwd?: string;
  /** After it the command is killed; 120000 when left out. */
  timeoutMs?: number;
  /** `utf-8`: as text, what is none as U+FFFD. `base64`: the exact bytes. */
  encoding?: "utf-8" | "base64";
}

export interface InboundEvent {
  /** Identifier of the event. */
  id: string;
  /** The channel by which it came. */
  channelId: string;
  /** The agent that it is for. */
  agentId: string;
  /** Such as `slack.message`, `slack.retry`, `email.received`. */
  kind: string;
  /** `failed`: another attempt cannot help. `dead`: no attempt helped. */
  state: "queued" | "processing" | "done" | "ignored" | "duplicate" | "failed" | "dead";
  /** Why it is ignored, failed or dead. */
  reason: string | null;
  duplicateOf: string | null;
  joinedTo: string | null;
  /** How often the sender delivered it again. */
  retryCount: number;
  conversationId: string | null;
  runId: string | null;
  /** When it came in. ISO 8601, UTC, with milliseconds. */
  receivedAt: string;
  /** Every state that it had, oldest first. */
  history: {
    state: string;
    at: string;
    reason: string | null;
  }[];
}

export interface InboundEventAnswer {
  event: InboundEvent;
}

export interface InboundEventPage {
  events: InboundEvent[];
  /** Pass it as `cursor` to get the next page; null at the end of the list. */
  nextCursor: string | null;
}

export interface InboundReplaySend {
  /** Those that came in at this time or later. ISO 8601, UTC, with milliseconds. */
  since: string;
  /** Those of this channel alone. */
  channelId?: string;
}

export interface InboundReplayed {
  /** How many are queued again, at most 1000 by one call. */
  replayed: number;
  /** How many more there are; call again. */
  left: number;
  /** How many are left out, since their answer may have been sent: replay each by itself to send it again. */
  doubtful: number;
}

export interface LimitsAnswer {
  key: {
    /** The key that asks. */
    id: string;
    /** `use`: read and converse. `edit`: also change. Fixed at creation. */
    scope: "use" | "edit";
    /** `agent-bound`: one agent only. `org-bound`: the whole organisation. Fixed at creation. */
    binding: "agent-bound" | "org-bound";
    /** The agent of an agent-bound key. */
    agentId: string | null;
  };
  rateLimit: {
    /** Requests that the key may make in one window. */
    quota: number;
    windowSeconds: number;
    /** Of the quota; this request is among them. */
    used: number;
    remaining: number;
    /** Until the quota is whole again. */
    resetSeconds: number;
  };
}

export interface Message {
  /** Identifier of the message. */
  id: string;
  /** The agent. */
  agentId: string;
  /** The conversation. */
  conversationId: string;
  /** The run that it began (user) or that answered with it (assistant). */
  runId: string;
  role: "user" | "assistant";
  /** The text. */
  content: string;
  /** Of a user's message: what came beside its text, if anything. */
  parts?: Part[];
  /** The sender's own id, if it gave one. */
  clientMessageId?: string;
  /** As the sender gave it, if it did. */
  metadata?: Record<string, unknown>;
  /** Of an assistant's message: what the agent made, if anything; see the artifacts of the run. */
  artifactIds?: string[];
  /** When it was written. ISO 8601, UTC, with milliseconds. */
  createdAt: string;
}

export interface MessagePage {
  messages: Message[];
  /** Pass it as `cursor` to get the next page; null at the end of the list. */
  nextCursor: string | null;
}

export interface Part {
  kind: "text" | "data" | "file" | "link";
  /** Of a `text`. */
  text?: string;
  /** Of `data`: any JSON. */
  data?: unknown;
  /** Of a `file` or `link`. */
  name?: string | null;
  mediaType?: string | null;
  /** Of a `file`: base64. */
  bytes?: string;
  /** Of a `link`. */
  url?: string;
}

export type PartSend = {
  kind: "data";
  /** Any JSON. */
  data: unknown;
  /** A media type, such as `application/pdf`. */
  mediaType?: string;
} | {
  kind: "file";
  name?: string | null;
  /** A media type, such as `application/pdf`. */
  mediaType?: string;
  /** The content in base64, with padding. */
  bytes: string;
} | {
  kind: "link";
  name?: string | null;
  mediaType?: string | null;
  /** An absolute URL. The service does not fetch it. */
  url: string;
};

export interface Run {
  /** Identifier of the run. */
  id: string;
  /** The agent. */
  agentId: string;
  /** The conversation. */
  conversationId: string;
  /** The version that it runs on; null until it starts. */
  deploymentId: string | null;
  /** `completed`, `failed` and `cancelled` are final. */
  status: "queued" | "running" | "awaiting_input" | "completed" | "failed" | "cancelled";
  /** How often it was begun: more than 1 after a crash. */
  attempt: number;
  error: RunError | null;
  usage: Usage;
  /** When it was accepted. ISO 8601, UTC, with milliseconds. */
  createdAt: string;
  /** When it began; null while queued. */
  startedAt: string | null;
  /** When it ended; null until then. */
  endedAt: string | null;
}

export interface RunAnswer {
  run: Run;
}

export interface RunError {
  /** Words for a person. */
  error: string;
  /** One word for a program, such as `model_error`, `timeout` or `sandbox_oom`. */
  code: string;
}

export interface RunPage {
  runs: Run[];
  /** Pass it as `cursor` to get the next page; null at the end of the list. */
  nextCursor: string | null;
}

export interface RunRespond {
  /** `requestId` of the event `permission.requested` or `input.requested`. */
  requestId: string;
  /** To a permission: `optionId` of the chosen option. */
  optionId?: string;
  /** To an input: what was asked for, by the names of its `form`, or a text when the form has one text only; null = you do not want to say. */
  content?: string | Record<string, unknown> | null;
}

export interface Sandbox {
  /** The agent. */
  agentId: string;
  state: "stopped" | "starting" | "running" | "stopping" | "failed";
  /** It runs, but its processes are stopped where they are until it is used again. */
  frozen: boolean;
  /** Names this start of it; of a stopped one the last, null when there was none. */
  sandboxId: string | null;
  /** The node of the service that it is on, or was on last. */
  node: string | null;
  /** Since when it is in this state; null when it was never started. */
  since: string | null;
  /** CPU time since its start, in microseconds; null unless it runs here. */
  cpuMicros: number | null;
  /** Memory in use now; null unless it runs here. */
  memoryBytes: number | null;
  /** Processes and threads in it now; null unless it runs here. */
  processes: number | null;
  /** Turns that are under way in it. */
  runningTurns: number;
  /** What the agent has used since this sandbox was started, models included. US dollars as a decimal text. */
  costSoFar: string;
  /** Why it ended or failed, in words. */
  reason: string | null;
}

export interface SandboxAnswer {
  sandbox: Sandbox;
}

export interface SandboxFile {
  /** The name; what is no UTF-8 in it is shown as U+FFFD, so address it by `href`. */
  name: string;
  /** Its address, with every byte of the name as it is. */
  href: string;
  /** `other`: a pipe, a socket or a device. */
  type: "file" | "folder" | "link" | "other";
  /** Of a file its length, else 0. */
  sizeBytes: number;
  /** Permission bits, octal. */
  mode: string;
  /** When its content changed last. ISO 8601, UTC, with milliseconds. */
  modifiedAt: string;
  /** Where a link leads; null for all others. Links are not followed. */
  target: string | null;
  /** The `ETag` of a file, for `If-Match`; null for all others. */
  etag: string | null;
}

export interface SandboxFilePage {
  files: SandboxFile[];
  /** Pass it as `cursor` to get the next page; null at the end of the list. */
  nextCursor: string | null;
}

export interface SandboxFileWritten {
  /** The file or folder; null when an archive was unpacked. */
  file: SandboxFile | null;
  /** How much came out of the archive; null when none was sent. */
  unpacked: {
    entries: number;
    bytes: number;
  } | null;
}

export interface SandboxPage {
  sandboxes: Sandbox[];
  /** Pass it as `cursor` to get the next page; null at the end of the list. */
  nextCursor: string | null;
}

export interface Schedule {
  /** Identifier of the schedule. */
  id: string;
  /** The agent that gets the messages. */
  agentId: string;
  /** What you called it. */
  name: string;
  status: "active" | "paused";
  cron: string;
  timeZone: string;
  /** The message's text. */
  content: string;
  /** What it carries beside its text. */
  parts: Part[];
  /** Each tick begins a conversation, or all go on with one. */
  conversation: "new" | "kept";
  conversationId: string | null;
  /** When the kept conversation has an unfinished run. `reject`: the tick is skipped. */
  onBusy: "enqueue" | "interrupt" | "reject";
  /** What becomes of ticks that are over 60 seconds late: nothing, or one message for all of them. */
  onMissed: "skip" | "once";
  nextDueAt: string | null;
  /** When it was made. ISO 8601, UTC, with milliseconds. */
  createdAt: string;
  /** When it was last changed. ISO 8601, UTC, with milliseconds. */
  updatedAt: string;
}

export interface ScheduleAnswer {
  schedule: Schedule;
}

export interface ScheduleCreate {
  /** Five fields, minute to day of the week, with `*`, lists, ranges, steps and names; or `@hourly`, `@daily`, `@weekly`, `@monthly`, `@yearly`. */
  cron: string;
  /** The message's text. May be empty when there are parts. */
  content: string;
  /** 1 to 100 characters. */
  name?: string;
  /** A name of the IANA database. Clock changes are as in the guide to schedules. */
  timeZone?: string;
  parts?: PartSend[];
  /** Each tick begins a conversation, or all go on with one. */
  conversation?: "new" | "kept";
  /** With `kept`: a conversation that there is. Null: the next tick begins one. */
  conversationId?: string | null;
  /** When the kept conversation has an unfinished run. `reject`: the tick is skipped. */
  onBusy?: "enqueue" | "interrupt" | "reject";
  /** What becomes of ticks that are over 60 seconds late: nothing, or one message for all of them. */
  onMissed?: "skip" | "once";
}

export interface SchedulePage {
  schedules: Schedule[];
  /** Pass it as `cursor` to get the next page; null at the end of the list. */
  nextCursor: string | null;
}

export interface ScheduleTick {
  /** Identifier of the record. */
  id: string;
  /** The schedule. */
  scheduleId: string;
  /** By the clock, or because somebody asked for it. */
  trigger: "schedule" | "manual";
  state: "fired" | "skipped";
  /** When it was due. ISO 8601, UTC, with milliseconds. */
  dueAt: string;
  firedAt: string | null;
  /** Why it was skipped: `missed`, or the code of the error by which the message was refused. */
  reason: string | null;
  /** The same in words. */
  message: string | null;
  /** How many missed ticks before it this record stands for too; counted up to 1000. */
  missedBefore: number;
  conversationId: string | null;
  runId: string | null;
}

export interface ScheduleTickAnswer {
  tick: ScheduleTick;
}

export interface ScheduleTickPage {
  ticks: ScheduleTick[];
  /** Pass it as `cursor` to get the next page; null at the end of the list. */
  nextCursor: string | null;
}

export interface ScheduleUpdate {
  /** Five fields, minute to day of the week, with `*`, lists, ranges, steps and names; or `@hourly`, `@daily`, `@weekly`, `@monthly`, `@yearly`. */
  cron?: string;
  /** The message's text. May be empty when there are parts. */
  content?: string;
  /** 1 to 100 characters. */
  name?: string;
  /** A name of the IANA database. Clock changes are as in the guide to schedules. */
  timeZone?: string;
  parts?: PartSend[];
  /** Each tick begins a conversation, or all go on with one. */
  conversation?: "new" | "kept";
  /** With `kept`: a conversation that there is. Null: the next tick begins one. */
  conversationId?: string | null;
  /** When the kept conversation has an unfinished run. `reject`: the tick is skipped. */
  onBusy?: "enqueue" | "interrupt" | "reject";
  /** What becomes of ticks that are over 60 seconds late: nothing, or one message for all of them. */
  onMissed?: "skip" | "once";
}

export interface SecretName {
  /** Name of the secret: an environment variable in the sandbox. */
  key: string;
  /** `env`: the value is in the environment of the sandbox, and the agent can read it. `brokered`: the sandbox holds a placeholder, and the value goes into requests to `hosts` only. `withheld`: the service itself uses it (keys of model providers, GIT_TOKEN), and nothing of it is in the sandbox. */
  kind: "env" | "brokered" | "withheld";
  /** The hosts that a brokered value is sent to, on port 443 or the one that is given; else empty. */
  hosts: string[];
  /** When its value was last set. ISO 8601, UTC, with milliseconds. */
  updatedAt: string;
}

export interface SecretPage {
  secrets: SecretName[];
  /** Pass it as `cursor` to get the next page; null at the end of the list. */
  nextCursor: string | null;
}

export interface SecretPut {
  /** The value, up to 64 KiB. Setting a new one replaces the old. */
  value: string;
  /** Broker the secret: the sandbox holds a placeholder, and the value is put into the headers of https requests to these hosts only, such as `api.example.com`, `*.example.com` or `git.example.com:8443`. The value must then be one line of 8 to 8192 bytes. Left out, the hosts stay as they are: none for a new secret. With an empty list the agent can read the value. */
  hosts?: string[];
}

export interface Snapshot {
  /** Identifier of the snapshot. */
  id: string;
  /** The agent whose files they are. */
  agentId: string;
  /** What you called it; may be empty. */
  name: string;
  /** Of all files together. */
  sizeBytes: number;
  /** What it took on the disk: what other snapshots have is not stored again. */
  storedBytes: number;
  /** When it was taken. ISO 8601, UTC, with milliseconds. */
  createdAt: string;
}

export interface SnapshotAnswer {
  snapshot: Snapshot;
}

export interface SnapshotCreate {
  /** Up to 100 characters. */
  name?: string;
}

export interface SnapshotPage {
  snapshots: Snapshot[];
  /** Pass it as `cursor` to get the next page; null at the end of the list. */
  nextCursor: string | null;
}

export interface SnapshotRestoreSend {
  /** Another agent, whose files become these; its own agent when left out. */
  toAgentId?: string;
}

export interface Usage {
  inputTokens: number;
  outputTokens: number;
  /** What it cost. US dollars as a decimal text. */
  cost: string;
}

export interface WebhookAttempt {
  /** Counts from 1. */
  number: number;
  /** When it began. ISO 8601, UTC, with milliseconds. */
  at: string;
  /** Until the answer, or until it was given up. */
  latencyMs: number;
  /** What the receiver answered; null: nothing. */
  status: number | null;
  /** What was wrong, in words; null: it was taken. */
  error: string | null;
  /** The first 1024 bytes of the answer's body. */
  answer: string | null;
}

export interface WebhookDelivery {
  /** Identifier of the delivery: its header `webhook-id`, the same in every attempt. */
  id: string;
  /** The endpoint. */
  endpointId: string;
  /** The type of its event. */
  type: string;
  /** When it happened. ISO 8601, UTC, with milliseconds. */
  at: string;
  agentId: string | null;
  conversationId: string | null;
  runId: string | null;
  /** Of the event in its conversation. */
  seq: number | null;
  /** `failed`: no attempt was taken, and none follows by itself. */
  state: "pending" | "delivered" | "failed";
  /** How many there were. */
  attempts: number;
  nextAttemptAt: string | null;
  /** What the receiver answered last. */
  lastStatus: number | null;
  /** What was wrong with the last attempt, in words. */
  lastError: string | null;
  endedAt: string | null;
}

export interface WebhookDeliveryAnswer {
  delivery: WebhookDelivery;
}

export interface WebhookDeliveryDetail {
  delivery: WebhookDelivery;
  /** Oldest first. */
  attempts: WebhookAttempt[];
}

export interface WebhookDeliveryPage {
  deliveries: WebhookDelivery[];
  /** Pass it as `cursor` to get the next page; null at the end of the list. */
  nextCursor: string | null;
}

export interface WebhookEndpoint {
  /** Identifier of the endpoint. */
  id: string;
  /** What you called it. */
  name: string;
  url: string;
  /** Which events it is told of; `*` is all of them. */
  events: ("*" | "run.queued" | "run.started" | "run.awaiting_input" | "run.resumed" | "run.retrying" | "run.completed" | "run.failed" | "run.cancelled" | "webhook_endpoint.disabled")[];
  /** Only events of this agent; null: of all. */
  agentId: string | null;
  status: "enabled" | "disabled";
  /** Why the service disabled it: nothing was taken for 5 days, or it answered 410. */
  disabledReason: "failing" | "gone" | null;
  failingSince: string | null;
  lastSuccessAt: string | null;
  /** When it was made. ISO 8601, UTC, with milliseconds. */
  createdAt: string;
  /** When it was last changed. ISO 8601, UTC, with milliseconds. */
  updatedAt: string;
}

export interface WebhookEndpointAnswer {
  endpoint: WebhookEndpoint;
}

export interface WebhookEndpointCreate {
  /** Where events are posted. https, unless the host is on a network that the operator has opened. */
  url: string;
  /** Which events it is told of; `*` is all of them. */
  events: ("*" | "run.queued" | "run.started" | "run.awaiting_input" | "run.resumed" | "run.retrying" | "run.completed" | "run.failed" | "run.cancelled" | "webhook_endpoint.disabled")[];
  /** 1 to 100 characters. */
  name?: string;
  /** Only events of this agent; null: of all. */
  agentId?: string | null;
}

export interface WebhookEndpointPage {
  endpoints: WebhookEndpoint[];
  /** Pass it as `cursor` to get the next page; null at the end of the list. */
  nextCursor: string | null;
}

export interface WebhookEndpointUpdate {
  /** Where events are posted. https, unless the host is on a network that the operator has opened. */
  url?: string;
  /** Which events it is told of; `*` is all of them. */
  events?: ("*" | "run.queued" | "run.started" | "run.awaiting_input" | "run.resumed" | "run.retrying" | "run.completed" | "run.failed" | "run.cancelled" | "webhook_endpoint.disabled")[];
  /** 1 to 100 characters. */
  name?: string;
  /** Only events of this agent; null: of all. */
  agentId?: string | null;
}

export interface WebhookEndpointWithSecret {
  endpoint: WebhookEndpoint;
  /** What its events are signed with (Standard Webhooks): shown this once. */
  secret: string;
}

export interface WebhookRetried {
  /** How many deliveries are sent again. */
  retried: number;
}

export interface WebhookRetrySend {
  /** Of the oldest event, ISO 8601. */
  since: string;
}
