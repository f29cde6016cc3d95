import { newId } from '../domain/ids.ts';
import type { Log } from '../domain/log.ts';
import type { ModelCaller, ModelGatewayHooks, ModelUsage } from '../domain/ports/model-gateway.ts';
import type { LedgerRow, RunLife } from '../services/run-life.ts';
import type { Keeper } from './keeper.ts';
import type { Turn } from './turn.ts';

/** What the model gateway reports to the runtime; budgets are asked by others. */
export type UsageHooks = Pick<ModelGatewayHooks, 'onUsage' | 'onCall'>;

/** Counts model calls for the run in whose turn they were made: in the ledger, in the run's sums, in its event log. */
export function createUsageHooks(deps: {
  life: RunLife;
  keeper: Keeper;
  /** The turn of a conversation that is under way here, or was the last one. */
  turnOf: (conversationId: string) => Turn | null;
  log: Log;
}): UsageHooks {
  const { life, keeper, turnOf, log } = deps;

  /** A harness that names no session is known by the only turn in its sandbox; else the call is the agent's alone. */
  function turnFor(caller: ModelCaller, sessionId: string | null): Turn | null {
    const kept = keeper.byId(caller.sandboxId);
    if (!kept) return null;
    const named = sessionId === null ? null : kept.connection.conversationOfSession(sessionId);
    if (named !== null) {
      // A session is the harness's word; it may name a conversation that is not its agent's.
      const turn = turnOf(named);
      return turn?.claim.agentId === caller.agentId ? turn : null;
    }
    const [only, ...others] = kept.turns;
    return only !== undefined && others.length === 0 ? turnOf(only) : null;
  }

  return {
    onCall(caller, sessionId) {
      const turn = turnFor(caller, sessionId);
      if (turn) turn.isBegun = true;
      if (turn) return;
      // Whose call it is nobody knows, and it may be of any.
      for (const conversationId of keeper.byId(caller.sandboxId)?.turns ?? []) {
        const any = turnOf(conversationId);
        if (any) any.isBegun = true;
      }
    },
    onUsage(caller, usage) {
      const turn = turnFor(caller, usage.sessionId);
      const rows = ledgerRows(caller, usage, turn);
      if (turn) return turn.addUsage(rows, { ...usage, entries: counted(usage) });
      life.recordLateUsage(rows).catch((error: unknown) => {
        log.error('Usage could not be recorded.', { rows, error: String(error) });
      });
    },
  };
}

function ledgerRows(caller: ModelCaller, usage: ModelUsage, turn: Turn | null): LedgerRow[] {
  const at = new Date().toISOString();
  return counted(usage).map((entry, index) => ({
    id: newId(),
    org_id: caller.orgId,
    agent_id: caller.agentId,
    run_id: turn?.claim.runId ?? null,
    key_id: turn?.claim.keyId ?? null,
    meter: entry.meter,
    model: usage.model,
    quantity: entry.quantity,
    unit_price: entry.unitPricePerMillionMicros === null ? null : String(entry.unitPricePerMillionMicros),
    price_version: usage.priceVersion,
    cost_micros: String(entry.costMicros),
    at,
    reservation_id: index === 0 ? usage.reservationId : null,
  }));
}

const counted = (usage: ModelUsage) => usage.entries.filter((entry) => entry.quantity > 0);
