import { createHash } from 'node:crypto';
import type { Config } from './config.ts';
import type { Log } from './domain/log.ts';
import type { SandboxDriver } from './domain/ports/sandbox.ts';
import { createBubblewrap } from './sandbox/bubblewrap.ts';
import { DockerDriver } from './sandbox/docker/driver.ts';
import { ProcessDriver } from './sandbox/process/process-driver.ts';

/** The driver that the configuration names, and never another. */
export function openSandboxDriver(config: Config, log: Log): SandboxDriver {
  // Names this installation's sandboxes on the host; two services with two data directories do not meet.
  const name = createHash('sha256').update(config.dataDir).digest('hex').slice(0, 12);
  const options = { areaDir: config.paths.runtime, name, log: log.child({ part: 'sandbox' }) };
  switch (config.sandboxDriver) {
    case 'bubblewrap':
      return createBubblewrap({
        ...options,
        disk: {
          mode: config.sandbox.diskMode,
          imagesDir: config.paths.disks,
          bytes: config.sandbox.diskMb * 1024 * 1024,
          bytesPerSecond: config.sandbox.diskWriteMb * 1024 * 1024,
        },
      });
    case 'process':
      return new ProcessDriver(options);
    case 'docker':
      return new DockerDriver({
        ...options,
        socket: config.docker.socket,
        runtime: config.docker.runtime,
        // The configuration refuses the driver without an image.
        image: config.docker.image ?? '',
      });
  }
}
