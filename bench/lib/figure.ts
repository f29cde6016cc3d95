import { largest, median, smallest } from './stats.ts';

export interface Target {
  kind: 'at most' | 'at least';
  value: number;
}

/** One line of the report. */
export interface Figure {
  name: string;
  unit: string;
  /** Of `samples`, the median. */
  value: number;
  min: number;
  max: number;
  samples: number;
  target: Target | null;
  isMet: boolean | null;
  /** The same work by the bare wire client in a plain process, where there is such a thing. */
  floor: number | null;
  ratioToFloor: number | null;
  /** Why there is no value; null when there is one. */
  missing: string | null;
}

export interface FigureOptions {
  target?: Target;
  floor?: number;
}

export const atMost = (value: number): Target => ({ kind: 'at most', value });
export const atLeast = (value: number): Target => ({ kind: 'at least', value });

/** A figure from the values of repeated rounds: their median, with the lowest and the highest beside it. */
export function figure(
  name: string,
  unit: string,
  rounds: number | readonly number[],
  options: FigureOptions = {},
): Figure {
  const values = typeof rounds === 'number' ? [rounds] : rounds;
  const value = median(values);
  const { target = null, floor = null } = options;
  return {
    name,
    unit,
    value,
    min: smallest(values),
    max: largest(values),
    samples: values.length,
    target,
    isMet: target && isMet(value, target),
    floor,
    ratioToFloor: floor === null || floor === 0 ? null : value / floor,
    missing: null,
  };
}

/** What could not be measured here, with the reason. */
export function notMeasured(name: string, unit: string, missing: string): Figure {
  return { ...figure(name, unit, []), missing };
}

function isMet(value: number, target: Target): boolean {
  return target.kind === 'at most' ? value <= target.value : value >= target.value;
}
