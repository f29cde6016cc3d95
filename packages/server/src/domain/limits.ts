/** The numbers of the API contract, section 4, and of what it leaves to us. Each has a test and a line in the docs. */
export const limits = {
  bodyBytes: 1024 * 1024,
  /** Of all bodies that are read or worked on, whatever the protocol, of an organisation and of this node; small ones are free. */
  bodiesInFlight: { smallBytes: 64 * 1024, ofOrg: 128 * 1024 * 1024, ofAll: 512 * 1024 * 1024 },
  /**
   * Of deliveries to channels, which nobody has verified yet: of one channel, of the organisation of its agent, and of this process.
   * A channel may have more, if its kind takes a larger body: one always fits.
   */
  webhookBodies: {
    smallBytes: 64 * 1024,
    ofPart: 24 * 1024 * 1024,
    ofOrg: 48 * 1024 * 1024,
    ofAll: 192 * 1024 * 1024,
    ofSmall: { ofPart: 24 * 1024 * 1024, ofOrg: 32 * 1024 * 1024, ofAll: 128 * 1024 * 1024 },
  },
  /** Of that of this process, the tenths that senders have who send again when they are refused. */
  webhookBodiesSentAgainTenths: 9,
  /** Of deliveries to the one address of Slack apps that agents share, whose organisation is not known before the body is read. */
  sharedAppBodies: {
    smallBytes: 64 * 1024,
    ofOrg: 32 * 1024 * 1024,
    ofAll: 32 * 1024 * 1024,
    ofSmall: { ofOrg: 32 * 1024 * 1024, ofAll: 32 * 1024 * 1024 },
  },
  /** Of model requests until their calls end: of one sandbox, of an organisation, and of this process; small ones are free. */
  modelBodies: {
    smallBytes: 64 * 1024,
    ofPart: 64 * 1024 * 1024,
    ofOrg: 128 * 1024 * 1024,
    ofAll: 512 * 1024 * 1024,
  },
  /** Of objects and lists in each other, in a body of JSON. */
  jsonDepth: 128,
  /** Of names and values in such a body: texts, numbers, `true`, `false`, `null`, objects, lists, names of fields. */
  jsonValues: 100_000,
  /** Of all lists in it whose entries the API looks at, together. */
  bodyEntries: 20_000,
  /** Wrong fields that an error names. */
  errorDetails: 100,
  nameChars: 100,
  descriptionChars: 2_000,
  contentChars: 200_000,
  /** Of a message beside its text: files, data and links. */
  partsPerMessage: 20,
  /** Of all of them, as JSON. */
  partsChars: 4 * 1024 * 1024,
  partNameChars: 255,
  partUrlChars: 2_000,
  clientMessageIdChars: 255,
  /** Of a message's, as JSON. */
  metadataChars: 16 * 1024,
  /** What a turn may put into artifacts, as JSON; and how many artifacts it may make. */
  artifactCharsPerTurn: 8 * 1024 * 1024,
  artifactsPerTurn: 100,
  /**
   * What a turn's log tells of its model calls: so many events in all, and so many before the calls are joined; then that
   * often, with the sums by meter and model, and of so many different ones by name.
   */
  usageEventsPerTurn: { told: 2_000, alone: 1_000, joinedMs: 60_000, kinds: 50 },
  /** Of a question's text, of its form as JSON, and of its answer as JSON. */
  questionChars: 10_000,
  questionFormChars: 16 * 1024,
  answerChars: 200_000,
  secretValueBytes: 64 * 1024,
  secretsPerAgent: 100,
  secretHosts: 20,
  /** A brokered value goes into a header, and must be long enough to be known again in an answer. */
  brokeredValueMinBytes: 8,
  brokeredValueMaxBytes: 8 * 1024,
  /** For which the answers of its hosts are searched for what a brokered secret was before; the newest of a name, and of an agent. */
  earlierValueDays: 7,
  earlierValuesPerSecret: 4,
  earlierValuesPerAgent: 100,
  /** So many values fit into a head that any host would read. */
  placeholdersPerRequest: 16,
  gitUrlChars: 2_000,
  /** Of pages that may speak to an agent. */
  allowedOrigins: 20,
  refChars: 255,
  manifestBytes: 64 * 1024,
  instructionsBytes: 1024 * 1024,
  pageDefault: 50,
  pageMax: 100,
  /** A page of messages or events ends with the entry that reaches it. */
  pageBytes: 4 * 1024 * 1024,
  idempotencyKeyChars: 255,
  idempotencyHours: 24,
  waitDefaultSeconds: 120,
  waitMaxSeconds: 600,
  queuedRunsPerConversation: 100,
  /** Of the places of a node for turns (`BERTH_MAX_CONCURRENT_RUNS`), the tenths that one agent and one organisation have at most. */
  runPlaceTenths: { ofAgent: 5, ofOrg: 9 },
  sseHeartbeatMs: 15_000,
  deltaRetentionHours: 24,
  /** After so long a session in which nothing was said is forgotten. */
  acpUnusedSessionDays: 7,
  /** What the fork of a conversation copies, without deltas. */
  forkEvents: 20_000,
  forkBytes: 32 * 1024 * 1024,
  acpSessionsPerConnection: 100,
  acpCwdChars: 4_096,
  /** Of the id of a request, and of a session. */
  acpIdChars: 256,
  /** Connections of the Agent Client Protocol that a key has open at once. */
  acpConnectionsPerKey: 100,
  /** One message of a client, with the files in it. */
  acpMessageBytes: 6 * 1024 * 1024,
  /** Of what a client has not read; beyond it the agent's updates wait in the log. */
  acpUnreadBytes: 8 * 1024 * 1024,
  /** After so long a client that reads nothing, or asks for nothing over HTTP, has no connection any more. */
  acpIdleMs: 300_000,
  /** Of a request of A2A, whose messages may hold files. */
  a2aBodyBytes: 6 * 1024 * 1024,
  /** Calls that one connection of A2A over gRPC has open at once. */
  a2aGrpcStreams: 100,
  /** Compressed messages of A2A over gRPC that are unpacked at once in this process; others wait. */
  a2aGrpcUnpackings: 8,
  /** Those of an organisation that wait; a key has as many as are left of them. */
  a2aGrpcWaitingToUnpack: 1_024,
  /** Bytes of messages of A2A over gRPC that are too small to count in `bodiesInFlight`; a key has as many as are left of its organisation's. */
  a2aGrpcSmallMessages: { ofOrg: 128 * 1024 * 1024, ofAll: 256 * 1024 * 1024 },
  /** A connection of gRPC without a call for so long is ended. */
  a2aGrpcIdleMs: 300_000,
  /** Connections to an agent's own web server that are open at once, and to those of all agents of this node. */
  webConnections: { ofAgent: 100, ofAll: 1_000 },
  /** Without a key, from one address to one agent's public server. */
  webPublicRequests: 1_200,
  webPublicWindowSeconds: 60,
  /** Of a head, in either direction. */
  webHeadBytes: 16 * 1024,
  /** For so long the server may leave a request without an answer, and the client one half sent. */
  webAnswerMs: 120_000,
  /** A connection on which nothing passes for so long is ended. */
  webIdleMs: 300_000,
  pushConfigsPerTask: 20,
  /** How often an update of a task is tried to be sent, over about a day. */
  pushAttempts: 12,
  /** Pushes to the clients of one agent, of one organisation, and of all, at once in a process. */
  pushRequests: { ofAgent: 8, ofOrg: 48, ofAll: 64 },
  /** For an answer to one; A2A 1.0, section 4.3.3 wants 10 to 30 seconds. */
  pushTimeoutMs: 10_000,
  /** After a task has ended, its push configurations are kept for so long. */
  pushConfigDays: 30,
  snapshotsPerAgent: 50,
  channelsPerAgent: 50,
  webhookEndpointsPerOrg: 20,
  /** Requests to one endpoint at once, over all replicas; to one that fails there is one. */
  webhookRequestsPerEndpoint: 4,
  /** To the endpoints of one organisation, and of all, at once in a process. */
  webhookRequestsPerOrg: 16,
  webhookRequests: 128,
  /** For all of an attempt, from the look-up of the name to the end of the answer. */
  webhookTimeoutMs: 15_000,
  /** Of the answer's body, in the log of attempts. */
  webhookAnswerBytes: 1_024,
  /** After so long without a success an endpoint is disabled. */
  webhookFailingDays: 5,
  /** Before that the operator is told so, once after each of these. */
  webhookWarningDays: [1, 3],
  webhookDeliveryDays: 30,
  schedulesPerAgent: 100,
  cronChars: 200,
  /** A tick that is later than this was missed. */
  scheduleGraceSeconds: 60,
  /** Of the ticks that one record stands for, so many are counted. */
  scheduleMissedCounted: 1_000,
  /** What became of ticks is kept for so long. */
  scheduleTickDays: 90,
  /** Organisations, and channels of each, that share one Slack app: each delivery is verified for all of them. */
  slackAppOrgs: 20,
  slackAppChannels: 200,
  /** For commands and terminals in a sandbox that a message waits for to be replaced. */
  replacedCommandSeconds: 10,
  /** Deliveries to a channel that cannot be verified; beyond it larger bodies than that are not read for a minute. */
  forgeriesPerMinute: 60,
  forgedBodyBytes: 64 * 1024,
  /** Of a message of Amazon SNS, whose signature is inside of its JSON: it has 256 KiB, and may be escaped. */
  snsMessageBytes: 2 * 1024 * 1024,
  /** Between two looks for a key that a provider's key set did not name before. */
  keyRefreshSeconds: 30,
  /** Files of one message that are put into the workspace: how many, each, and together. */
  attachmentsPerMessage: 20,
  attachmentBytes: 25 * 1024 * 1024,
  attachmentsBytes: 50 * 1024 * 1024,
  /** That a process fetches and holds in memory at once. */
  attachmentsAtOnce: 4,
  /** For which the signing secret before the last rotation is still taken. */
  previousSecretHours: 24,
  /** Turns of an organisation that channels have under way at once; what comes beyond waits in the inbox. */
  channelTurnsPerOrg: 64,
  /** That came while a turn went on, and are answered together by the next; and their text. */
  joinedMessages: 20,
  joinedChars: 150_000,
  /** Of a mail over SMTP. */
  smtpMessageBytes: 25 * 1024 * 1024,
  /** Of all that are being read, for the organisation of the first recipient and in this process; small ones are free. */
  smtpBodies: { smallBytes: 64 * 1024, ofOrg: 32 * 1024 * 1024, ofAll: 128 * 1024 * 1024 },
  smtpRecipients: 20,
  smtpConnections: 200,
  /** Of one remote address: connections at once, and mails in a minute. */
  smtpConnectionsPerAddress: 20,
  smtpMailsPerMinute: 600,
  /** Servers that a mail may have passed. */
  smtpHops: 50,
  /** One attempt at what came in, from the reading to the sent answer; then another one begins. */
  inboundAttemptSeconds: 600,
  /** Of one organisation that wait for their turn; beyond it deliveries are to be sent again later, but for a tenth more of those that never are. */
  inboundBacklogPerOrg: 200_000,
  /** An event whose turn was given up because the service ended during it gets so many others. */
  inboundLostTurns: 4,
  /** Attempts at one event that end with the service, before it is taken for what ends it. */
  inboundCutOffs: 20,
  /** For which a provider may say that answers are too many, without that being held against one of them. */
  tooManyHours: 6,
  /** Pages of what a provider shows that are looked through for an answer that may have arrived. */
  lookupPages: 20,
  /** For which a message waits for files that a provider is asked for too often. */
  attachmentWaitMinutes: 10,
  /** For which what came in can be replayed. */
  inboundBodyDays: 30,
  /** Messages and notices that one delivery holds; as many as Meta sends in one. */
  inboundEventsPerDelivery: 1_000,
  /** Inbound events that one call works on again. */
  replayedAtOnce: 1_000,
  /** That are read at once, of an agent, of an organisation and of all of this node. */
  archives: { ofAgent: 4, ofOrg: 24, ofAll: 32 },
  /** A client that takes nothing of a body for so long is cut off. */
  stillReaderMs: 30_000,
  /** The same of those that are open. */
  terminals: { ofAgent: 8, ofAll: 200 },
  execArguments: 1_000,
  execArgumentChars: 100_000,
  execVariables: 200,
  execTimeoutDefaultMs: 120_000,
  execTimeoutMaxMs: 3_600_000,
  /** Of each output, in an answer that is not streamed. */
  execOutputBytes: 1024 * 1024,
  /** What the commands and servers of a sandbox send together, after so much at once; then they wait. */
  sandboxOutput: { bytesPerSecond: 8 * 1024 * 1024, burstBytes: 2 * 1024 * 1024 },
  /** Connections that a sandbox has open to the outside at once. */
  egressConnections: 256,
  /** New ones, after as many at once; others wait. */
  egressConnectionsPerSecond: 100,
  /** New connections of a sandbox to the socket of its proxy, refused ones too; then the socket is shut for a while. */
  egressArrivals: { burst: 320, perSecond: 100 },
  /** Connections that a sandbox has open to its model gateway at once: a harness has one for each of its turns. */
  gatewayConnections: 1_024,
  /** New ones to it after as many at once, since so many turns may begin in one moment: so many a second. */
  gatewayArrivals: { perSecond: 50 },
  /** Requests by these connections, so many at once and then so many a second: far more than busy agents make; one beyond is refused. */
  gatewayRequests: { burst: 2_048, perSecond: 1_000 },
  /** New connections to its control channel: one is served, and a launcher without a service dials a few times a second. */
  controlArrivals: { burst: 64, perSecond: 20 },
  /** Names and values in the JSON of one line that a harness writes; eight numbers or words count as one. */
  lineValues: 50_000,
  /** What is read of a control channel, in characters; a line counts as 512 at least, and as more for the names and values in it. */
  controlReading: { burst: 32 * 1024 * 1024, perSecond: 32 * 1024 * 1024 },
  /** Requests, and bytes of more, that come on a connection of a sandbox behind one that is not answered: beyond it is closed at once. */
  pipelinedRequests: 16,
  pipelinedBytes: 64 * 1024,
  /** Such a one counts as so many more new ones; for that its socket is shut for no longer. */
  pipelinedCharge: { connections: 16, maxMs: 10_000 },
  egressHeadBytes: 16 * 1024,
  egressHeaders: 100,
  /** To send a request, or the first bytes of a tunnel. */
  egressHeadMs: 15_000,
  egressIdleMs: 600_000,
  egressTotalMs: 24 * 3_600_000,
  /** Rules in each list of an agent's policy. */
  egressRules: 200,
  /** Kinds of refused connections that are kept per agent; the oldest go first. */
  egressRefusals: 500,
  /** Hosts that are counted by name for an agent in a day; the others are counted together. */
  egressHostsPerDay: 500,
  egressTrafficDays: 400,
} as const;

export const secretKeyPattern = /^[A-Za-z_][A-Za-z0-9_]{0,127}$/;
/** `<provider>/<model_name>` (specification, Agent). */
export const modelPattern = /^[a-z0-9][a-z0-9_-]{0,63}\/[^\s/][^\s]{0,199}$/;
