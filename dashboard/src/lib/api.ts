// The REST API. Every error is an ApiProblem with what went wrong and what to do next.

import { token } from './token';
import type * as t from './types';

const PREFIX = '/api/v1';

export interface FieldProblem {
  field: string;
  message: string;
}

export class ApiProblem extends Error {
  constructor(
    readonly status: number,
    readonly title: string,
    readonly detail: string,
    readonly hint: string | null = null,
    readonly node: string | null = null,
    readonly errors: FieldProblem[] = [],
  ) {
    super(detail);
  }

  /** Whether nothing was answered: the job manager is away. */
  get offline(): boolean {
    return this.status === 0;
  }
}

/** Return any thrown value as a problem that can be shown. */
export function problemOf(error: unknown): ApiProblem {
  if (error instanceof ApiProblem) return error;
  return new ApiProblem(500, 'Error', error instanceof Error ? error.message : String(error));
}

type QueryValue = string | number | boolean | null | undefined | (string | number)[];
export type Query = Record<string, QueryValue>;

let refused: () => void = () => {};

/** Set what happens when a token is missing, wrong or expired. */
export function onRefused(action: () => void): void {
  refused = action;
}

/** Return a path of the API with its query; empty values are left out. */
export function path(parts: TemplateStringsArray, ...values: (string | number)[]): string {
  return parts.reduce((text, part, at) => text + part + (at < values.length ? encodeURIComponent(values[at]!) : ''), '');
}

export function withQuery(url: string, query: Query = {}): string {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== null && one !== undefined && one !== '') parameters.append(name, String(one));
    }
  }
  const text = parameters.toString();
  return text ? `${url}?${text}` : url;
}

/** Send a request and return the response; raise an ApiProblem for anything but success. */
export async function send(url: string, options: RequestInit = {}): Promise<Response> {
  const headers = new Headers(options.headers);
  const text = token.get();
  if (text) headers.set('Authorization', `Bearer ${text}`);
  let response: Response;
  try {
    response = await fetch(url.startsWith('/ready') ? url : PREFIX + url, { ...options, headers, credentials: 'omit' });
  } catch (error) {
    if (error instanceof DOMException && error.name === 'AbortError') throw error;
    throw new ApiProblem(0, 'NoConnection', 'the job manager does not answer', 'is `penstock up` still running?');
  }
  if (response.ok) return response;
  const problem = await read(response);
  if (response.status === 401) refused();
  throw problem;
}

async function read(response: Response): Promise<ApiProblem> {
  const found = await response.json().catch(() => ({}));
  const detail = found.detail ?? `HTTP ${response.status}`;
  return new ApiProblem(response.status, found.title ?? 'Error', detail, found.hint, found.node, found.errors ?? []);
}

export async function get<T>(url: string, query: Query = {}, signal?: AbortSignal): Promise<T> {
  return (await send(withQuery(url, query), { signal })).json();
}

export async function post<T>(url: string, body?: unknown): Promise<T> {
  if (body instanceof FormData) return (await send(url, { method: 'POST', body })).json();
  const headers = { 'Content-Type': 'application/json' };
  const response = await send(url, { method: 'POST', headers, body: JSON.stringify(body ?? {}) });
  return response.status === 204 ? (undefined as T) : response.json();
}

export async function remove<T>(url: string): Promise<T> {
  const response = await send(url, { method: 'DELETE' });
  return response.status === 204 ? (undefined as T) : response.json();
}

/** Yield the lines of a text response as they come, until it ends or is aborted. */
export async function* lines(url: string, options: RequestInit = {}): AsyncGenerator<string> {
  const response = await send(url, options);
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      const parts = (rest + value).split('\n');
      rest = parts.pop() ?? '';
      yield* parts;
    }
    if (rest) yield rest;
  } finally {
    reader.cancel().catch(() => {});
  }
}

type Listed = 'epochs' | 'checkpoints' | 'savepoints' | 'versions' | 'exceptions' | 'transitions' | 'commands';
interface Items {
  epochs: t.Epoch;
  checkpoints: t.Checkpoint;
  savepoints: t.Savepoint;
  versions: t.Version;
  exceptions: t.JobException;
  transitions: t.Transition;
  commands: t.Command;
}

export const api = {
  session: () => get<t.Session>('/session'),
  cluster: () => get<t.Cluster>('/cluster'),
  jobs: (query: Query = {}) => get<t.Page<t.Job>>('/jobs', { limit: 500, ...query }),
  job: (job: string) => get<t.Job>(path`/jobs/${job}`),
  nodes: (job: string) => get<t.JobNodes>(path`/jobs/${job}/nodes`),
  sample: (job: string, node: string, signal?: AbortSignal) =>
    get<t.Sample>(path`/jobs/${job}/nodes/${node}/sample`, { limit: 20 }, signal),
  list: <K extends Listed>(job: string, what: K, query: Query = {}) =>
    get<t.Page<Items[K]>>(`${path`/jobs/${job}`}/${what}`, query),
  metrics: async (job: string, query: Query) =>
    (await get<{ items: t.Series[] }>(path`/jobs/${job}/metrics`, query)).items,
  sparklines: async (name: string, minutes = 10) =>
    (await get<{ items: t.Sparkline[] }>('/sparklines', { name, minutes })).items,
  difference: (job: string, version: number, to: number) =>
    get<t.PlanDifference>(path`/jobs/${job}/versions/${version}/difference`, { to }),
  source: async (job: string, version: number) =>
    (await send(path`/jobs/${job}/versions/${version}/source`)).text(),
  stop: (job: string, savepoint: boolean | string) => post<t.Command>(path`/jobs/${job}/stop`, { savepoint }),
  cancel: (job: string) => post<t.Command>(path`/jobs/${job}/cancel`),
  restart: (job: string) => post<t.Command>(path`/jobs/${job}/restart`),
  rescale: (job: string, parallelism: number) => post<t.Command>(path`/jobs/${job}/rescale`, { parallelism }),
  savepoint: (job: string, name: string | null) => post<t.Command>(path`/jobs/${job}/savepoints`, name ? { name } : {}),
  update: (job: string, form: FormData) => post<t.Command>(path`/jobs/${job}/update`, form),
  delete: (job: string) => remove<t.Command>(path`/jobs/${job}`),
  command: (id: string) => get<t.Command>(path`/commands/${id}`),
  /** What the manager needs; a manager that is not ready answers with a problem that lists what is missing. */
  readiness: async (): Promise<t.Readiness> => {
    try {
      return await get<t.Readiness>('/ready');
    } catch (error) {
      const problem = problemOf(error);
      if (problem.status !== 503) throw error;
      return { ready: false, checks: problem.errors.map((each) => ({ name: each.field, ok: false, detail: each.message })) };
    }
  },
};
