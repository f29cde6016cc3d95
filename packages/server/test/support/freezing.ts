import { fixture } from '../sandbox/fixture.ts';

/** Whether the sandboxes of this user on this machine can be frozen, as `berth doctor` says it: not without a cgroup. */
export async function canFreeze(): Promise<boolean> {
  const { driver, close } = fixture();
  try {
    return (await driver.capabilities()).freeze;
  } finally {
    await close();
  }
}
