// The time, for texts such as "3 s ago": once a second, and not in a hidden tab.

class Clock {
  now = $state(Date.now());

  constructor() {
    setInterval(() => {
      if (!document.hidden) this.now = Date.now();
    }, 1_000);
    document.addEventListener('visibilitychange', () => (this.now = Date.now()));
  }
}

export const clock = new Clock();
