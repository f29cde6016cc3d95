import type { ListTasksRequest } from '@a2a-js/sdk';
import { TaskState } from '@a2a-js/sdk';
import type { RunStatus } from '../../domain/nouns.ts';

export interface TaskListFilter {
  statuses: RunStatus[] | null;
  refused: boolean | null;
  authorization: boolean | null;
  since: Date | null;
}

/** Null: no task is ever in this state. */
export function taskFilter({ status, statusTimestampAfter }: ListTasksRequest): TaskListFilter | null {
  const since = statusTimestampAfter ? new Date(statusTimestampAfter) : null;
  const none = { refused: null, authorization: null, since };
  const only = (run: RunStatus, more: { refused?: boolean; authorization?: boolean } = {}) => ({
    ...none,
    statuses: [run],
    ...more,
  });
  switch (status) {
    case TaskState.TASK_STATE_UNSPECIFIED:
      return { ...none, statuses: null };
    case TaskState.TASK_STATE_SUBMITTED:
      return only('queued');
    case TaskState.TASK_STATE_WORKING:
      return only('running');
    case TaskState.TASK_STATE_INPUT_REQUIRED:
      return only('awaiting_input', { authorization: false });
    case TaskState.TASK_STATE_AUTH_REQUIRED:
      return only('awaiting_input', { authorization: true });
    case TaskState.TASK_STATE_COMPLETED:
      return only('completed');
    case TaskState.TASK_STATE_CANCELED:
      return only('cancelled');
    case TaskState.TASK_STATE_FAILED:
      return only('failed', { refused: false });
    case TaskState.TASK_STATE_REJECTED:
      return only('failed', { refused: true });
    case TaskState.UNRECOGNIZED:
      return null;
  }
}
