// Polling, for what the server does not push: never faster than every 5 s, and not in a hidden tab.

const FASTEST = 5_000;

/** Call `action` now and every `ms` milliseconds while the tab is visible; return what ends that. */
export function poll(action: () => Promise<unknown> | void, ms = FASTEST): () => void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  let ended = false;

  async function run(): Promise<void> {
    clearTimeout(timer);
    try {
      await action();
    } catch {
      // The page shows what it could not get; the next call tries again.
    }
    if (!ended && !document.hidden) {
      clearTimeout(timer);
      timer = setTimeout(run, Math.max(ms, FASTEST));
    }
  }

  const shown = (): void => {
    if (!document.hidden) void run();
  };
  document.addEventListener('visibilitychange', shown);
  void run();
  return () => {
    ended = true;
    clearTimeout(timer);
    document.removeEventListener('visibilitychange', shown);
  };
}

/** Return a function that calls `action` at most once in `ms` milliseconds, the last time included. */
export function throttle(action: () => void, ms: number): (() => void) & { cancel: () => void } {
  let timer: ReturnType<typeof setTimeout> | undefined;
  let last = 0;
  const call = (): void => {
    if (timer !== undefined) return;
    const wait = Math.max(0, last + ms - Date.now());
    timer = setTimeout(() => {
      timer = undefined;
      last = Date.now();
      action();
    }, wait);
  };
  call.cancel = () => {
    clearTimeout(timer);
    timer = undefined;
  };
  return call;
}
