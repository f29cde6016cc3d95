import type { A2ARequestHandler } from '@a2a-js/sdk/server';
import { legacyError } from './errors.ts';

/** The handler with errors that the SDK's 0.3 layer tells as they are: of others it would tell what only logs may hold. */
export function legacyHandler(handler: A2ARequestHandler, requestId: string): A2ARequestHandler {
  return mapErrors(handler, (error) => legacyError(error, requestId));
}

/** The handler, with what `map` makes of each error that it throws. */
export function mapErrors(handler: A2ARequestHandler, map: (error: unknown) => Error): A2ARequestHandler {
  const guarded =
    <A extends unknown[], R>(work: (...args: A) => Promise<R>) =>
    async (...args: A): Promise<R> => {
      try {
        return await work.apply(handler, args);
      } catch (error) {
        throw map(error);
      }
    };
  const guardedStream = <A extends unknown[], T>(work: (...args: A) => AsyncGenerator<T, void, undefined>) =>
    async function* (...args: A): AsyncGenerator<T, void, undefined> {
      try {
        yield* work.apply(handler, args);
      } catch (error) {
        throw map(error);
      }
    };
  return {
    getAgentCard: guarded(handler.getAgentCard),
    getAuthenticatedExtendedAgentCard: guarded(handler.getAuthenticatedExtendedAgentCard),
    sendMessage: guarded(handler.sendMessage),
    sendMessageStream: guardedStream(handler.sendMessageStream),
    getTask: guarded(handler.getTask),
    cancelTask: guarded(handler.cancelTask),
    createTaskPushNotificationConfig: guarded(handler.createTaskPushNotificationConfig),
    getTaskPushNotificationConfig: guarded(handler.getTaskPushNotificationConfig),
    listTaskPushNotificationConfigs: guarded(handler.listTaskPushNotificationConfigs),
    deleteTaskPushNotificationConfig: guarded(handler.deleteTaskPushNotificationConfig),
    resubscribe: guardedStream(handler.resubscribe),
    listTasks: guarded(handler.listTasks),
  };
}
