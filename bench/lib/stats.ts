/** The value below which `share` (0 to 1) of them lie; nearest rank. NaN without values. */
export function quantile(values: readonly number[], share: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.max(0, Math.ceil(sorted.length * share) - 1)] ?? Number.NaN;
}

export const median = (values: readonly number[]): number => quantile(values, 0.5);
export const smallest = (values: readonly number[]): number => quantile(values, 0);
export const largest = (values: readonly number[]): number => quantile(values, 1);
