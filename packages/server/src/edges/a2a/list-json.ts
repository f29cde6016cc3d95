import { ListTasksResponse } from '@a2a-js/sdk';

/** All four fields are always there, and so are the artifacts of each task when they were asked for (A2A 1.0, 3.1.4). */
export function listTasksJson(response: ListTasksResponse, withArtifacts: boolean): unknown {
  const { tasks = [] } = ListTasksResponse.toJSON(response) as { tasks?: Record<string, unknown>[] };
  const { nextPageToken, pageSize, totalSize } = response;
  return {
    tasks: withArtifacts ? tasks.map((task) => ({ ...task, artifacts: task['artifacts'] ?? [] })) : tasks,
    nextPageToken,
    pageSize,
    totalSize,
  };
}
