// Light or dark: as the system says, or as chosen here.

export type Theme = 'system' | 'light' | 'dark';
const KEY = 'penstock.theme';

class ThemeChoice {
  choice = $state<Theme>((localStorage.getItem(KEY) as Theme | null) ?? 'system');
  /** Grows when colours change: charts draw on canvas and must draw again. */
  changes = $state(0);

  constructor() {
    this.#apply();
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => (this.changes += 1));
  }

  set(theme: Theme): void {
    this.choice = theme;
    localStorage.setItem(KEY, theme);
    this.#apply();
    this.changes += 1;
  }

  toggle(): void {
    this.set(this.dark ? 'light' : 'dark');
  }

  get dark(): boolean {
    return this.choice === 'dark' || (this.choice === 'system' && matchMedia('(prefers-color-scheme: dark)').matches);
  }

  #apply(): void {
    const root = document.documentElement;
    if (this.choice === 'system') delete root.dataset.theme;
    else root.dataset.theme = this.choice;
  }
}

export const theme = new ThemeChoice();

/** Return a colour of the style sheet as a canvas understands it: `color('--accent')`. */
export function color(name: string): string {
  const probe = document.createElement('span');
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}
