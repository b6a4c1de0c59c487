// The token of this tab: gone when the tab is closed, and never in a cookie or a URL.

const KEY = 'penstock.token';

export const token = {
  get: (): string | null => sessionStorage.getItem(KEY),
  set: (text: string): void => sessionStorage.setItem(KEY, text),
  forget: (): void => sessionStorage.removeItem(KEY),
};
