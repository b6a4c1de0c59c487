// Records of a topic: read once by a query, or live as they are written. Bounded: an hour of a live view does not grow.

import { problemOf, type ApiProblem, type Query } from '../../lib/api';
import { log, tail, type Message } from '../../lib/log';
import { throttle } from '../../lib/polling';

export const MOST_LIVE = 500;
const FLUSH_MS = 250;

export class Reading {
  items = $state.raw<Message[]>([]);
  state = $state<'idle' | 'reading' | 'live'>('idle');
  problem = $state.raw<ApiProblem | null>(null);
  /** What a finished query has to say: how many records were read, and whether all. */
  scanned = $state<number | null>(null);
  complete = $state(true);
  missed = $state(0);
  received = $state(0);

  #waiting: Message[] = [];
  #ending: AbortController | null = null;
  #flush = throttle(() => this.#show(), FLUSH_MS);

  constructor(readonly topic: string) {}

  /** Read what a query asks for; the newest are shown first if they were asked for. */
  async read(query: Query): Promise<void> {
    const ending = this.#begin('reading');
    try {
      const found = await log.messages(this.topic, query, ending.signal);
      this.items = query.from === 'end' && query.offset === undefined && query.time === undefined ? newestFirst(found.items) : found.items;
      this.scanned = found.scanned;
      this.complete = found.complete;
      this.problem = null;
    } catch (error) {
      if (ending.signal.aborted) return;
      this.problem = problemOf(error);
      this.items = [];
    }
    if (this.#ending === ending) this.state = 'idle';
  }

  /** Show records as they come until `stop`, or until another reading begins. */
  async follow(query: Query): Promise<void> {
    const ending = this.#begin('live');
    this.items = [];
    this.received = this.missed = 0;
    this.scanned = null;
    this.problem = null;
    try {
      for await (const found of tail(this.topic, query, ending.signal)) {
        if (found.kind === 'message') this.#waiting.push(found.message);
        else if (found.kind === 'missed') this.missed += found.missed;
        else throw new Error(found.detail);
        this.#flush();
      }
    } catch (error) {
      if (!ending.signal.aborted) this.problem = problemOf(error);
    }
    if (this.#ending === ending) this.state = 'idle';
  }

  stop(): void {
    this.#ending?.abort();
    this.#ending = null;
    this.#show();
    this.#flush.cancel();
    this.state = 'idle';
  }

  #begin(state: 'reading' | 'live'): AbortController {
    this.#ending?.abort();
    this.#flush.cancel();
    this.#waiting = [];
    this.#ending = new AbortController();
    this.state = state;
    return this.#ending;
  }

  #show(): void {
    if (!this.#waiting.length) return;
    this.received += this.#waiting.length;
    this.items = [...this.#waiting.reverse(), ...this.items].slice(0, MOST_LIVE);
    this.#waiting = [];
  }
}

function newestFirst(items: Message[]): Message[] {
  const time = (each: Message): number => (each.timestamp ? Date.parse(each.timestamp) : 0);
  return [...items].sort((a, b) => time(b) - time(a) || b.partition - a.partition || b.offset - a.offset);
}
