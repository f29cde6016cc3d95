const EVERY_MS = 250;

/**
 * Under `npm start` the service is npm's child. When npm is killed (kill -9 cannot be passed on), the service must not
 * stay behind and hold the port and the data directory. Without npm it may outlive its parent, as a daemon does.
 */
export function watchParent(env: NodeJS.ProcessEnv, onGone: () => void): void {
  if (env['npm_lifecycle_event'] === undefined) return;
  const parent = process.ppid;
  setInterval(() => {
    if (process.ppid !== parent) onGone();
  }, EVERY_MS).unref();
}
