import {
  CancelTaskRequest,
  DeleteTaskPushNotificationConfigRequest,
  GetTaskPushNotificationConfigRequest,
  GetTaskRequest,
  ListTaskPushNotificationConfigsRequest,
  ListTasksRequest,
  SendMessageRequest,
  SubscribeToTaskRequest,
  TaskPushNotificationConfig,
  TaskState,
} from '@a2a-js/sdk';
import type { StreamResponse } from '@a2a-js/sdk';
import { DomainError } from '../../../domain/errors.ts';
import { badValue, isDeepValue } from '../../http/text.ts';
import {
  checkGetTask,
  checkListTasks,
  checkPushConfig,
  checkSend,
  checkTaskId,
  checkTaskScoped,
  malformed,
} from '../guard.ts';
import { TaskHandler } from '../handler.ts';
import type { TaskCall } from '../push-operations.ts';
import type { Version } from '../versions.ts';

/** A stream of gRPC, as the handler sees it. */
export interface Pace {
  /** Aborted when the client has gone, its deadline has passed or the service stops. */
  signal: AbortSignal;
  /** Resolves when the client can take more. */
  drained(): Promise<void>;
  isStopping(): boolean;
}

/**
 * The operations for messages that came in the binary form: checked by the same rules as JSON before anything is done, and
 * streamed no faster than the client reads.
 */
export class CheckedHandler extends TaskHandler {
  readonly #pace: Pace;

  constructor(call: TaskCall, version: Version, pace: Pace) {
    super(call, version, pace.signal);
    this.#pace = pace;
  }

  override async sendMessage(params: SendMessageRequest) {
    checkSend(jsonOf(SendMessageRequest, params));
    return super.sendMessage(params);
  }

  override async *sendMessageStream(
    params: SendMessageRequest,
  ): AsyncGenerator<StreamResponse, void, undefined> {
    checkSend(jsonOf(SendMessageRequest, params));
    yield* this.#paced(super.sendMessageStream(params));
  }

  override async getTask(params: GetTaskRequest) {
    checkGetTask(jsonOf(GetTaskRequest, params));
    return super.getTask(params);
  }

  override async cancelTask(params: CancelTaskRequest) {
    checkTaskId(jsonOf(CancelTaskRequest, params));
    return super.cancelTask(params);
  }

  override async *resubscribe(
    params: SubscribeToTaskRequest,
  ): AsyncGenerator<StreamResponse, void, undefined> {
    checkTaskId(jsonOf(SubscribeToTaskRequest, params));
    yield* this.#paced(super.resubscribe(params));
  }

  override async listTasks(params: ListTasksRequest) {
    checkListTasks(jsonOf(ListTasksRequest, params));
    return super.listTasks(params);
  }

  override async createTaskPushNotificationConfig(params: TaskPushNotificationConfig) {
    const json = jsonOf(TaskPushNotificationConfig, params);
    checkTaskScoped(json, false);
    checkPushConfig(json);
    return super.createTaskPushNotificationConfig(params);
  }

  override async getTaskPushNotificationConfig(params: GetTaskPushNotificationConfigRequest) {
    // 0.3 lets a client leave the id out.
    checkTaskScoped(jsonOf(GetTaskPushNotificationConfigRequest, params), this.version === '1.0');
    return super.getTaskPushNotificationConfig(params);
  }

  override async listTaskPushNotificationConfigs(params: ListTaskPushNotificationConfigsRequest) {
    checkTaskScoped(jsonOf(ListTaskPushNotificationConfigsRequest, params), false);
    return super.listTaskPushNotificationConfigs(params);
  }

  override async deleteTaskPushNotificationConfig(params: DeleteTaskPushNotificationConfigRequest) {
    checkTaskScoped(jsonOf(DeleteTaskPushNotificationConfigRequest, params), this.version === '1.0');
    return super.deleteTaskPushNotificationConfig(params);
  }

  async *#paced(items: AsyncGenerator<StreamResponse, void, undefined>) {
    let isWhole = false;
    for await (const item of items) {
      isWhole = saysAnEnd(item) ?? isWhole;
      yield item;
      await this.#pace.drained();
    }
    if (this.#pace.isStopping())
      throw new DomainError('unavailable', 'The service is stopping; subscribe to the task again.', {
        retryAfterSeconds: 1,
      });
    // Such as one of a key that was revoked: a status OK would say that the task has ended.
    if (!isWhole && !this.#pace.signal.aborted)
      throw new DomainError('unavailable', 'The stream has ended before the task; subscribe to it again.', {
        retryAfterSeconds: 1,
      });
  }
}

/** Whether a stream may end after this one; null: it says nothing of that. */
function saysAnEnd({ payload }: StreamResponse): boolean | null {
  if (payload?.$case === 'message') return true;
  if (payload?.$case !== 'task' && payload?.$case !== 'statusUpdate') return null;
  const state = payload.value.status?.state;
  return state !== TaskState.TASK_STATE_SUBMITTED && state !== TaskState.TASK_STATE_WORKING;
}

/** The JSON that says the same, when its texts and numbers can be stored and it is no deeper than JSON may be. */
function jsonOf<T>(codec: { toJSON(value: T): unknown }, params: T): unknown {
  const json = codec.toJSON(params);
  if (isDeepValue(json)) throw malformed('params', 'must not be nested so deep.');
  const bad = badValue(json);
  if (bad !== null) throw malformed(bad.path, `${bad.message}.`);
  return json;
}
