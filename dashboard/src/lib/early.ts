// Requests that are sent before the page that needs them is there: each answer is used once, and soon.

import { token } from './token';

const PREFIX = '/api/v1';
const USABLE_MS = 5_000;
const sent = new Map<string, Promise<Response>>();

/** Send what the page of an address asks for first. */
export function sendEarly(parts: string[]): void {
  const [section, job] = [parts[0] ?? '', parts[1]];
  const paths = ['/session'];
  if (section === 'jobs' && job) paths.push(`/jobs/${encodeURIComponent(job)}`, `/jobs/${encodeURIComponent(job)}/nodes`);
  else if (section === '' || section === 'jobs') paths.push('/jobs?limit=500');
  const text = token.get();
  const headers: HeadersInit = text ? { Authorization: `Bearer ${text}` } : {};
  for (const path of paths) {
    const answer = fetch(PREFIX + path, { headers, credentials: 'omit' });
    answer.catch(() => {});
    sent.set(path, answer);
  }
  setTimeout(forgetEarly, USABLE_MS);
}

/** Return the answer to a request that was sent early; undefined if there is none. */
export function takeEarly(path: string): Promise<Response> | undefined {
  const found = sent.get(path);
  sent.delete(path);
  return found;
}

/** Forget the answers: they were to another caller, or are old. */
export function forgetEarly(): void {
  sent.clear();
}
