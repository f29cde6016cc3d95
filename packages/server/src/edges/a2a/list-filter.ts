import type { ListTasksRequest } from '@a2a-js/sdk';
import { TaskState } from '@a2a-js/sdk';
import type { RunStatus } from '../../domain/nouns.ts';

export interface TaskListFilter {
  statuses: RunStatus[] | null;
  refused: boolean | null;
  since: Date | null;
}

/** Null: no task is ever in this state. */
export function taskFilter({ status, statusTimestampAfter }: ListTasksRequest): TaskListFilter | null {
  const since = statusTimestampAfter ? new Date(statusTimestampAfter) : null;
  const only = (run: RunStatus, refused: boolean | null = null) => ({ statuses: [run], refused, since });
  switch (status) {
    case TaskState.TASK_STATE_UNSPECIFIED:
      return { statuses: null, refused: null, since };
    case TaskState.TASK_STATE_SUBMITTED:
      return only('queued');
    case TaskState.TASK_STATE_WORKING:
      return only('running');
    case TaskState.TASK_STATE_INPUT_REQUIRED:
      return only('awaiting_input');
    case TaskState.TASK_STATE_COMPLETED:
      return only('completed');
    case TaskState.TASK_STATE_CANCELED:
      return only('cancelled');
    case TaskState.TASK_STATE_FAILED:
      return only('failed', false);
    case TaskState.TASK_STATE_REJECTED:
      return only('failed', true);
    case TaskState.TASK_STATE_AUTH_REQUIRED:
    case TaskState.UNRECOGNIZED:
      return null;
  }
}
