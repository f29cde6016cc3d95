import { isolationGrades, type Isolation, type SandboxDriver } from '../domain/ports/sandbox.ts';

export interface IsolationPolicy {
  minimum: Isolation;
  /** The explicit word that plain processes may be used. */
  allowsProcesses: boolean;
  organisations: number;
}

/**
 * Why the service must not start with this driver, as a line that begins with the variable to change; null when it may.
 * Fails closed: a driver that cannot prove its isolation has none.
 */
export async function isolationProblem(
  driver: Pick<SandboxDriver, 'name' | 'isolation'>,
  policy: IsolationPolicy,
): Promise<string | null> {
  if (driver.name === 'process' && !policy.allowsProcesses)
    return 'BERTH_SANDBOX=process runs agents without any isolation; it is refused unless BERTH_UNSAFE_PROCESS_SANDBOX is 1 and BERTH_MIN_ISOLATION is none.';
  let isolation: Isolation;
  try {
    isolation = await driver.isolation();
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    return `BERTH_SANDBOX=${driver.name} is not usable, so its isolation is not known: ${why}`;
  }
  if (isolationGrades.indexOf(isolation) < isolationGrades.indexOf(policy.minimum))
    return `BERTH_MIN_ISOLATION asks for ${policy.minimum}, and the driver ${driver.name} gives ${isolation} here; choose another driver or runtime, or set BERTH_MIN_ISOLATION=${isolation}.`;
  if (isolation === 'none' && policy.organisations > 1)
    return `BERTH_SANDBOX=${driver.name} isolates nothing, and there are ${policy.organisations} organisations; it is for one alone.`;
  return null;
}
