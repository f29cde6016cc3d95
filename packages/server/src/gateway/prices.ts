import type { Meter } from '../domain/events.ts';
import type { TokenCounts } from './usage-paths.ts';
import type { Wire } from './wires.ts';

/** Micro-dollars per million tokens. */
export interface TokenPrices {
  input: bigint;
  cachedInput: bigint;
  cacheWrite: bigint;
  output: bigint;
}

export interface ModelPrice extends TokenPrices {
  /** Some vendors charge more for the whole call when its prompt is longer than a bound. */
  long: { aboveInputTokens: number; prices: TokenPrices } | null;
}

export interface UsageEntry {
  meter: Meter;
  quantity: number;
  unitPricePerMillionMicros: bigint | null;
  costMicros: bigint;
}

/** Tokens of one call, no token in two of them. */
export interface Tokens {
  input: number;
  cachedInput: number;
  cacheWrite: number;
  cacheWriteLong: number;
  output: number;
  /** Some of it was not reported and is counted from bytes. */
  isEstimated: boolean;
}

/** The usual relation, for what nothing better is known about: four bytes of text are a token. */
export function tokensOfBytes(bytes: number): number {
  return Math.ceil(bytes / 4);
}

/**
 * Makes disjoint token counts of what a wire reports: Anthropic leaves cached tokens out of `input_tokens`, the others
 * count them in; Gemini leaves reasoning out of its answer count, and some Chat Completions providers do so too, which
 * shows only in the total. When nothing was reported, or the answer was cut before its last word on usage, what passed
 * is counted instead, so that going away early does not make a call free.
 */
export function tokensUsed(
  wire: Wire,
  counts: TokenCounts,
  seen: { requestBytes: number; answerBytes: number; isComplete: boolean },
): Tokens {
  const known = (count: number): number => Math.max(0, count);
  const cachedInput = known(counts.cached);
  const long = known(counts.cacheWriteLong);
  const cacheWrite = Math.max(0, known(counts.cacheWrite) - long);
  const allInput = counts.input >= 0 ? counts.input : tokensOfBytes(seen.requestBytes);
  const input = wire === 'anthropic' ? allInput : Math.max(0, allInput - cachedInput);

  let output = known(counts.output) + known(counts.reasoning);
  if (counts.total >= 0 && counts.input >= 0) output = Math.max(output, counts.total - counts.input);
  const isOutputKnown = counts.output >= 0 || counts.total >= 0;
  const counted = tokensOfBytes(seen.answerBytes);
  const isCounted = (!isOutputKnown || !seen.isComplete) && counted > output;
  if (isCounted) output = counted;
  return {
    input,
    cachedInput,
    cacheWrite,
    cacheWriteLong: long,
    output,
    isEstimated: isCounted || counts.input < 0,
  };
}

/** Rounded to the nearest micro-dollar; a half goes up. */
function cost(quantity: number, perMillion: bigint | null): bigint {
  return perMillion === null ? 0n : (BigInt(quantity) * perMillion + 500_000n) / 1_000_000n;
}

/** The ledger's entries; none for what was not used. An unknown price costs 0 and says so by a unit price of null. */
export function usageEntries(tokens: Tokens, model: ModelPrice | null): UsageEntry[] {
  const prompt = tokens.input + tokens.cachedInput + tokens.cacheWrite + tokens.cacheWriteLong;
  const price = pricesAt(model, prompt);
  const entry = (meter: Meter, quantity: number, unit: bigint | null): UsageEntry[] =>
    quantity > 0
      ? [{ meter, quantity, unitPricePerMillionMicros: unit, costMicros: cost(quantity, unit) }]
      : [];
  return [
    ...entry('model.input_tokens', tokens.input, price?.input ?? null),
    ...entry('model.input_tokens', tokens.cacheWrite, price?.cacheWrite ?? null),
    // A cache entry that lives for an hour is billed at twice the input price (Anthropic, "Prompt caching").
    ...entry('model.input_tokens', tokens.cacheWriteLong, price ? price.input * 2n : null),
    ...entry('model.cached_input_tokens', tokens.cachedInput, price?.cachedInput ?? null),
    ...entry('model.output_tokens', tokens.output, price?.output ?? null),
  ];
}

function pricesAt(model: ModelPrice | null, inputTokens: number): TokenPrices | null {
  return model?.long && inputTokens > model.long.aboveInputTokens ? model.long.prices : model;
}

/** What a call may cost at most by a rough count, to be set aside before it. */
export function estimateMicros(
  requestBytes: number,
  maxOutputTokens: number,
  price: ModelPrice | null,
): bigint {
  if (!price) return 0n;
  return cost(tokensOfBytes(requestBytes), price.input) + cost(maxOutputTokens, price.output);
}
