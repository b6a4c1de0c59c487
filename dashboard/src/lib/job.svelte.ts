// One job with its nodes and its newest epochs, kept current by events.

import { api, problemOf, type ApiProblem } from './api';
import { events } from './events.svelte';
import { epochChanges } from './jobs.svelte';
import { poll, throttle } from './polling';
import type { Counts, Epoch, Job, JobEvent, JobNode, JobState } from './types';

const FLUSH_MS = 250;
/** Lag and rate of a job without epochs come with heartbeats, which are not pushed. */
const HEARTBEAT_MS = 15_000;
/** Epochs that are kept: enough for the tables and the charts of five minutes. */
const MOST_EPOCHS = 500;
const COUNTS = ['in', 'used', 'filtered', 'late', 'rejected', 'duplicate', 'dropped'] as const;

type Figures = Partial<Omit<JobNode, 'counts'>> & Partial<Counts>;

export class JobData {
  job = $state.raw<Job | null>(null);
  nodes = $state.raw<JobNode[]>([]);
  nodesProblem = $state.raw<ApiProblem | null>(null);
  nodesLoaded = $state(false);
  epochs = $state.raw<Epoch[]>([]);
  problem = $state.raw<ApiProblem | null>(null);
  /** Grows with each transition and command: lists of those are fetched again. */
  changes = $state(0);

  #figures = new Map<string, Figures>();
  #newEpochs: Epoch[] = [];
  #jobChanges: Partial<Job> = {};
  #flush = throttle(() => this.#apply(), FLUSH_MS);
  #refetch = throttle(() => void this.fetchJob(), FLUSH_MS);

  constructor(readonly id: string) {}

  async fetchJob(): Promise<void> {
    try {
      this.job = await api.job(this.id);
      this.problem = null;
    } catch (error) {
      this.problem = problemOf(error);
    }
  }

  async fetchNodes(): Promise<void> {
    try {
      this.nodes = (await api.nodes(this.id)).items;
      this.nodesProblem = null;
    } catch (error) {
      this.nodesProblem = problemOf(error);
    }
    this.nodesLoaded = true;
  }

  async fetchEpochs(): Promise<void> {
    const page = await api.list(this.id, 'epochs', { limit: MOST_EPOCHS }).catch(() => null);
    if (page) this.epochs = page.items;
  }

  async fetch(): Promise<void> {
    await Promise.all([this.fetchJob(), this.fetchNodes(), this.fetchEpochs()]);
  }

  /** Keep the job current until the returned function is called. */
  watch(): () => void {
    void this.fetchEpochs();
    const ends = [
      poll(() => Promise.all([this.fetchJob(), this.fetchNodes()]), HEARTBEAT_MS),
      events.on((event) => this.#take(event)),
      events.onStale(() => void this.fetch()),
    ];
    return () => {
      ends.forEach((end) => end());
      this.#flush.cancel();
      this.#refetch.cancel();
    };
  }

  #take(event: JobEvent): void {
    if (!this.job || event.job !== this.job.id) return;
    if (event.kind === 'epoch') {
      this.#jobChanges = { ...this.#jobChanges, ...epochChanges(event) };
      this.#newEpochs.push(epochOf(event));
      for (const [name, found] of Object.entries((event.nodes ?? {}) as Record<string, Figures>)) this.#figures.set(name, found);
      this.#flush();
    } else {
      if (event.kind === 'state') this.#jobChanges = { ...this.#jobChanges, state: event.to as JobState };
      this.changes += 1;
      this.#flush();
      this.#refetch();
    }
  }

  #apply(): void {
    if (this.job) this.job = { ...this.job, ...this.#jobChanges };
    this.#jobChanges = {};
    if (this.#newEpochs.length) {
      const fresh = this.#newEpochs.reverse();
      const oldest = fresh[fresh.length - 1]!.number;
      this.epochs = [...fresh, ...this.epochs.filter((each) => each.number < oldest)].slice(0, MOST_EPOCHS);
      this.#newEpochs = [];
    }
    if (this.#figures.size) {
      const figures = this.#figures;
      this.nodes = this.nodes.map((node) => (figures.has(node.name) ? withFigures(node, figures.get(node.name)!) : node));
      this.#figures = new Map();
    }
  }
}

/** Return a node with newer figures: counts are beside the others in an event. */
function withFigures(node: JobNode, found: Figures): JobNode {
  const { in: _, used, filtered, late, rejected, duplicate, dropped, ...others } = found;
  const counts = { in: _, used, filtered, late, rejected, duplicate, dropped };
  const known = COUNTS.filter((name) => counts[name] !== undefined);
  if (!known.length) return { ...node, ...others };
  const zero: Counts = { in: 0, used: 0, filtered: 0, late: 0, rejected: 0, duplicate: 0, dropped: 0 };
  return { ...node, ...others, counts: { ...zero, ...node.counts, ...Object.fromEntries(known.map((name) => [name, counts[name]])) } };
}

function epochOf(event: JobEvent): Epoch {
  return {
    number: event.epoch as number,
    at: event.at,
    rows_in: (event.rows_in as number) ?? 0,
    rows_out: (event.rows_out as number) ?? 0,
    late: (event.late as number) ?? 0,
    rejected: (event.rejected as number) ?? 0,
    duration_ms: (event.duration_ms as number) ?? 0,
    phases: (event.phases as Record<string, number>) ?? {},
    watermark: (event.watermark as string) ?? null,
    ended_input: Boolean(event.ended_input),
  };
}
