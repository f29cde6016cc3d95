/** Puts the entry last and keeps the map bounded: of too many entries the one that was put first goes. */
export function keepNewest<V>(map: Map<string, V>, key: string, value: V, maxEntries: number): void {
  map.delete(key);
  if (map.size >= maxEntries) map.delete(map.keys().next().value!);
  map.set(key, value);
}
