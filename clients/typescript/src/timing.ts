/**
 * Pauses and time limits.
 *
 * @module
 */

/** Wait for the given number of seconds. */
export function sleep(seconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, seconds * 1000));
}

/** Wait for a promise, but no longer than the given number of seconds. */
export async function within(seconds: number, promise: Promise<void>): Promise<void> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const over = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, seconds * 1000);
  });
  await Promise.race([promise, over]).finally(() => clearTimeout(timer));
}
