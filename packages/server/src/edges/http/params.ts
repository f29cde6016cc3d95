import { isId } from '../../domain/ids.ts';
import { secretKeyPattern } from '../../domain/limits.ts';
import { invalidRequest } from './validate.ts';
import { readVolumePath } from './volume-path.ts';

/** The names in a path template: `ParamsOf<'/v1/agents/{id}'>` is `{ id: string }`. */
export type ParamsOf<P extends string> = { [K in NamesOf<P>]: string };
type NamesOf<P extends string> = P extends `${string}{${infer Name}}${infer Rest}`
  ? Name | NamesOf<Rest>
  : never;

export interface ParamInfo {
  /** `path`: all that is left of the URL's path, slashes included, as it was sent. */
  kind: 'id' | 'secretKey' | 'path';
  description: string;
  example: string;
}

const exampleId = '0197c2b4-6f7e-7c2a-9d51-3f0a1c9be842';
const id = (description: string): ParamInfo => ({ kind: 'id', description, example: exampleId });

/** Every path parameter of the API. */
export const paramInfo: Record<string, ParamInfo> = {
  id: id('The id of the resource.'),
  agentId: id('The id of the agent.'),
  keyId: id('The id of the API key.'),
  conversationId: id('The id of the conversation.'),
  runId: id('The id of the run.'),
  deploymentId: id('The id of the deployment.'),
  snapshotId: id('The id of the snapshot.'),
  channelId: id('The id of the channel.'),
  inboundEventId: id('The id of the inbound event.'),
  scheduleId: id('The id of the schedule.'),
  endpointId: id('The id of the webhook endpoint.'),
  deliveryId: id('The id of the delivery.'),
  path: {
    kind: 'path',
    description:
      'A path in the sandbox, each name percent-encoded: relative to `/workspace`, or absolute when it begins with a further slash (or `%2F`), under `/workspace` or `/home/agent`. Empty: `/workspace` itself.',
    example: 'reports/summary.md',
  },
  key: { kind: 'secretKey', description: 'The name of the secret.', example: 'GITHUB_TOKEN' },
};

/** Never given to anything: what has not the shape of an id is looked up as this, and so is answered as missing. */
const nowhere = '00000000-0000-0000-0000-000000000000';

export function readParam(name: string, text: string): string {
  const kind = paramInfo[name]?.kind;
  if (kind === 'path') {
    readVolumePath(text);
    return text;
  }
  if (kind !== 'secretKey') return isId(text) ? text : nowhere;
  if (secretKeyPattern.test(text)) return text;
  throw invalidRequest([
    {
      path: name,
      message: 'must begin with a letter or underscore, then up to 127 letters, digits or underscores',
    },
  ]);
}
