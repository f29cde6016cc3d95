/** A run of system calls whose numbers follow each other. */
export interface NumberedRun {
  from: number;
  /** Names in the order of their numbers, separated by white space. */
  names: string;
}

/** Name to number. Throws when a name or a number occurs twice, since one of the two would be filtered wrongly. */
export function numbered(runs: NumberedRun[]): ReadonlyMap<string, number> {
  const numbers = new Map<string, number>();
  const taken = new Set<number>();
  for (const run of runs) {
    for (const [index, name] of run.names.trim().split(/\s+/).entries()) {
      const number = run.from + index;
      if (numbers.has(name) || taken.has(number))
        throw new Error(`System call ${name} (${number}) is listed twice.`);
      numbers.set(name, number);
      taken.add(number);
    }
  }
  return numbers;
}
