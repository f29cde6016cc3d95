/**
 * What `work` gives, or what `late` makes of it when it takes longer than `limitMs`. Work that is late goes on, and how
 * it ends is nobody's concern any more.
 */
export async function within<T>(limitMs: number, work: PromiseLike<T>, late: () => T): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const limit = new Promise<T>((resolve, reject) => {
    timer = setTimeout(() => {
      try {
        resolve(late());
      } catch (error) {
        reject(error as Error);
      }
    }, limitMs);
  });
  try {
    return await Promise.race([work, limit]);
  } finally {
    clearTimeout(timer);
  }
}
