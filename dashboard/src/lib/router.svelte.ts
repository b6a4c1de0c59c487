// Pages by what follows `#` in the address: `#/jobs/ID/charts?range=1h`.

export interface Location {
  /** Decoded parts of the path: `['jobs', 'ID', 'charts']`. */
  parts: string[];
  query: URLSearchParams;
}

function read(): Location {
  const [path = '', query = ''] = location.hash.replace(/^#/, '').split('?', 2);
  const parts = path.split('/').filter(Boolean).map(decode);
  return { parts, query: new URLSearchParams(query) };
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

class Router {
  here = $state.raw<Location>(read());

  constructor() {
    addEventListener('hashchange', () => (this.here = read()));
  }

  /** Go to a page; with `replace`, without a new entry in the history. */
  go(target: string, replace = false): void {
    if (replace) {
      history.replaceState(null, '', target);
      this.here = read();
    } else {
      location.hash = target.replace(/^#/, '');
    }
  }

  /** Set parameters of the query of this page; null removes one. */
  set(parameters: Record<string, string | null>): void {
    const query = new URLSearchParams(this.here.query);
    for (const [name, value] of Object.entries(parameters)) {
      if (value === null || value === '') query.delete(name);
      else query.set(name, value);
    }
    this.go(link(this.here.parts, Object.fromEntries(query)), true);
  }
}

export const router = new Router();

/** Return the address of a page: `link(['jobs', id])` is `#/jobs/ID`. */
export function link(parts: (string | number)[], query: Record<string, string> = {}): string {
  const path = parts.map((part) => encodeURIComponent(part)).join('/');
  const text = new URLSearchParams(query).toString();
  return `#/${path}${text ? `?${text}` : ''}`;
}
