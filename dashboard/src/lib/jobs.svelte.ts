// All jobs, kept current by events: what the overview and the choices of jobs on other pages show.

import { api, problemOf, type ApiProblem } from './api';
import { events } from './events.svelte';
import { poll, throttle } from './polling';
import type { Job, JobEvent, JobState } from './types';

const SPARKLINE_MS = 10_000;
/** Lag and rate of a job without epochs come with heartbeats, which are not pushed. */
const LIST_MS = 20_000;
const FLUSH_MS = 250;

class Jobs {
  items = $state.raw<Job[]>([]);
  loaded = $state(false);
  /** Whether there are more jobs than the newest 500. */
  more = $state(false);
  problem = $state.raw<ApiProblem | null>(null);
  sparklines = $state.raw<Map<string, [number, number][]>>(new Map());

  #changes = new Map<string, Partial<Job>>();
  #asked = new Set<string>();
  #flush = throttle(() => this.#apply(), FLUSH_MS);
  #fetchChanged = throttle(() => void this.#refetch(), FLUSH_MS);

  async fetch(): Promise<void> {
    try {
      const page = await api.jobs();
      this.items = page.items;
      this.more = page.next !== null;
      this.problem = null;
      this.loaded = true;
    } catch (error) {
      this.problem = problemOf(error);
    }
  }

  /** Keep the jobs current until the returned function is called. */
  watch(): () => void {
    const ends = [
      poll(() => this.fetch(), LIST_MS),
      events.on((event) => this.#take(event)),
      events.onStale(() => void this.fetch()),
      poll(() => this.#fetchSparklines(), SPARKLINE_MS),
    ];
    return () => {
      ends.forEach((end) => end());
      this.#flush.cancel();
      this.#fetchChanged.cancel();
    };
  }

  #take(event: JobEvent): void {
    if (!event.job) return;
    if (event.kind === 'deleted') {
      this.items = this.items.filter((each) => each.id !== event.job);
    } else if (event.kind === 'epoch') {
      this.#change(event.job, epochChanges(event));
    } else if (event.kind === 'state') {
      this.#change(event.job, { state: event.to as JobState });
      this.#asked.add(event.job);
      this.#fetchChanged();
    }
  }

  #change(job: string, changes: Partial<Job>): void {
    this.#changes.set(job, { ...this.#changes.get(job), ...changes });
    this.#flush();
  }

  #apply(): void {
    const changes = this.#changes;
    this.#changes = new Map();
    this.items = this.items.map((each) => (changes.has(each.id) ? { ...each, ...changes.get(each.id) } : each));
  }

  /** A job that changed its state has other fields than before, or is new. */
  async #refetch(): Promise<void> {
    const asked = [...this.#asked];
    this.#asked.clear();
    if (asked.length > 5 || asked.some((id) => !this.items.some((each) => each.id === id))) return this.fetch();
    const found = await Promise.all(asked.map((id) => api.job(id).catch(() => null)));
    const fresh = new Map(found.filter((each) => each !== null).map((each) => [each.id, each]));
    this.items = this.items.map((each) => fresh.get(each.id) ?? each);
  }

  async #fetchSparklines(): Promise<void> {
    const found = await api.sparklines('rows_per_second');
    this.sparklines = new Map(found.map((each) => [each.job, each.points]));
  }
}

/** Return what an epoch event changes of a job. */
export function epochChanges(event: JobEvent): Partial<Job> {
  const changes: Partial<Job> = {
    rows_per_second: event.rows_in_per_s as number | null,
    epoch: event.epoch as number,
    watermark: event.watermark as string | null,
    ended_input: Boolean(event.ended_input),
  };
  return event.lag === null || event.lag === undefined ? changes : { ...changes, lag: event.lag as number };
}

export const jobs = new Jobs();
