import type { LedgerRow } from '../store/lanes.ts';

/** Among more than so many kinds that wait is not looked for the same one: it is seldom there. */
const maxLooked = 32;

/** Adds rows to those that wait; the sums of both are exactly those of all rows. What ends a reservation stays by itself. */
export function joinRows(waiting: LedgerRow[], rows: readonly LedgerRow[]): void {
  for (const row of rows) {
    const at = waiting.slice(-maxLooked).find((other) => isSameKind(other, row));
    if (!at) {
      waiting.push({ ...row });
      continue;
    }
    at.quantity += row.quantity;
    at.cost_micros = String(BigInt(at.cost_micros) + BigInt(row.cost_micros));
  }
}

function isSameKind(one: LedgerRow, other: LedgerRow): boolean {
  return (
    one.reservation_id === null &&
    other.reservation_id === null &&
    one.meter === other.meter &&
    one.model === other.model &&
    one.run_id === other.run_id &&
    one.key_id === other.key_id &&
    one.agent_id === other.agent_id &&
    one.org_id === other.org_id &&
    one.unit_price === other.unit_price &&
    one.price_version === other.price_version &&
    // Spending is counted by the day.
    one.at.slice(0, 10) === other.at.slice(0, 10)
  );
}
