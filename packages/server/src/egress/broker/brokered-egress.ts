import type { Egress } from '../../domain/ports/egress.ts';
import type { SecretBroker } from '../../domain/ports/secret-broker.ts';

/** A way out by which the sandbox gets placeholders and its own authority besides. */
export function withBroker(proxy: Egress, broker: SecretBroker): Egress {
  return {
    async open(owner, runDir) {
      const env = await broker.open(owner, runDir);
      const close = () => broker.close(owner.sandboxId);
      try {
        const opened = await proxy.open(owner, runDir);
        return {
          ...opened,
          env: { ...env, ...opened.env },
          close() {
            opened.close();
            close();
          },
        };
      } catch (error) {
        close();
        throw error;
      }
    },
    policyChanged: (agentId) => proxy.policyChanged(agentId),
    stats: () => proxy.stats(),
    close: () => proxy.close(),
  };
}
