import type {
  DeleteTaskPushNotificationConfigRequest,
  GetTaskPushNotificationConfigRequest,
  ListTaskPushNotificationConfigsRequest,
  ListTaskPushNotificationConfigsResponse,
  TaskPushNotificationConfig,
} from '@a2a-js/sdk';
import type { A2aCapability } from '../../domain/a2a-capabilities.ts';
import { DomainError } from '../../domain/errors.ts';
import type { Run } from '../../domain/nouns.ts';
import type { PushConfig } from '../../services/a2a-api.ts';
import type { HostCall } from '../hosts/host-edge.ts';
import { PushNotificationNotSupportedError, TaskNotFoundError, UnsupportedOperationError } from './errors.ts';
import type { Version } from './versions.ts';

/** What the operations need of a call, by whatever binding it came. */
export type TaskCall = Pick<
  HostCall,
  'agent' | 'caller' | 'services' | 'origin' | 'grpcTarget' | 'a2aCapabilities'
>;

/** Operations on the push configurations of a task, and how a task is found. */
export class PushOperations {
  readonly call: TaskCall;
  readonly version: Version;

  constructor(call: TaskCall, version: Version) {
    this.call = call;
    this.version = version;
  }

  /** Nothing is done for what the card does not declare (A2A 1.0, section 3.3.4). */
  declared(capability: A2aCapability): void {
    if (this.call.a2aCapabilities.includes(capability)) return;
    throw capability === 'pushNotifications'
      ? new PushNotificationNotSupportedError('No push notifications are sent here; see the agent card.')
      : new UnsupportedOperationError(`The agent card does not declare ${capability}.`);
  }

  /** What is not the caller's to see is not found, whatever it is. */
  async run(taskId: string): Promise<Run> {
    const { services, caller } = this.call;
    const run = await services.runs.get(caller, taskId).catch((error: unknown) => {
      throw error instanceof DomainError && error.code === 'not_found' ? taskNotFound() : error;
    });
    await services.a2a.forgetSend(caller, run.id);
    return run;
  }

  async contextOf(conversationId: string): Promise<string> {
    return (await this.call.services.a2a.contextIds([conversationId])).get(conversationId) ?? conversationId;
  }

  async createTaskPushNotificationConfig(
    params: TaskPushNotificationConfig,
  ): Promise<TaskPushNotificationConfig> {
    this.declared('pushNotifications');
    const { services, caller, agent } = this.call;
    const run = await this.run(params.taskId);
    const config = readPushConfig(params, this.version)!;
    return shown(run.id, await services.a2a.putPushConfig(caller, agent.id, run.id, config, false));
  }

  async getTaskPushNotificationConfig(
    params: GetTaskPushNotificationConfigRequest,
  ): Promise<TaskPushNotificationConfig> {
    const configs = await this.#configs(params.taskId);
    // 0.3 lets a client leave the id out.
    const found =
      configs.find(({ id }) => id === (params.id || params.taskId)) ??
      (params.id === '' ? configs[0] : undefined);
    if (!found) throw new TaskNotFoundError('The task has no such push configuration.');
    return shown(params.taskId, found);
  }

  async listTaskPushNotificationConfigs(
    params: ListTaskPushNotificationConfigsRequest,
  ): Promise<ListTaskPushNotificationConfigsResponse> {
    const configs = await this.#configs(params.taskId);
    return { configs: configs.map((config) => shown(params.taskId, config)), nextPageToken: '' };
  }

  async deleteTaskPushNotificationConfig(params: DeleteTaskPushNotificationConfigRequest): Promise<void> {
    this.declared('pushNotifications');
    const { services, caller, agent } = this.call;
    const run = await this.run(params.taskId);
    await services.a2a.removePushConfig(caller, agent.id, run.id, params.id || run.id);
  }

  async #configs(taskId: string): Promise<PushConfig[]> {
    this.declared('pushNotifications');
    const { services, caller, agent } = this.call;
    const run = await this.run(taskId);
    return services.a2a.pushConfigs(caller, agent.id, run.id);
  }
}

function taskNotFound(): TaskNotFoundError {
  return new TaskNotFoundError('There is no task of this id.');
}

export function readPushConfig(
  config: TaskPushNotificationConfig | undefined,
  version: Version,
): PushConfig | null {
  if (!config) return null;
  const { id, url, token, authentication } = config;
  const given = authentication && authentication.scheme !== '' ? authentication : null;
  return {
    id,
    url,
    version,
    secret: {
      token,
      authentication: given && { scheme: given.scheme, credentials: given.credentials },
    },
  };
}

function shown(taskId: string, { id, url, secret }: PushConfig): TaskPushNotificationConfig {
  return {
    tenant: '',
    id,
    taskId,
    url,
    token: secret.token,
    authentication: secret.authentication ?? undefined,
  };
}
