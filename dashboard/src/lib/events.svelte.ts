// Events of the job manager by one WebSocket: it connects again by itself, and says when what is shown may be stale.

import { token } from './token';
import type { JobEvent } from './types';

const FIRST_DELAY = 500;
const LONGEST_DELAY = 8_000;

type Handler = (event: JobEvent) => void;

class Events {
  /** lost: the connection was there and is gone; a new one is tried. */
  status = $state<'off' | 'connecting' | 'open' | 'lost'>('off');

  #socket: WebSocket | null = null;
  #job: string | null = null;
  #delay = FIRST_DELAY;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #wasOpen = false;
  #handlers = new Set<Handler>();
  #staleHandlers = new Set<() => void>();
  /** Called when connecting fails repeatedly: perhaps the token is not valid any more. */
  onRefused: () => void = () => {};

  /** Connect to the events of all jobs, or with a job's id, to those of that job, which say more. */
  watch(job: string | null): void {
    if (this.#socket && this.#job === job) return;
    this.#job = job;
    this.#connect();
  }

  stop(): void {
    clearTimeout(this.#timer);
    this.#close();
    this.#wasOpen = false;
    this.status = 'off';
  }

  /** Try again at once. */
  retry(): void {
    this.#delay = FIRST_DELAY;
    this.#connect();
  }

  /** Call `handler` with every event; return what ends that. */
  on(handler: Handler): () => void {
    this.#handlers.add(handler);
    return () => this.#handlers.delete(handler);
  }

  /** Call `handler` when events were missed, or the connection is there again: fetch again what is shown. */
  onStale(handler: () => void): () => void {
    this.#staleHandlers.add(handler);
    return () => this.#staleHandlers.delete(handler);
  }

  #close(): void {
    const socket = this.#socket;
    this.#socket = null;
    if (socket) {
      socket.onmessage = socket.onclose = null;
      socket.close();
    }
  }

  #connect(): void {
    clearTimeout(this.#timer);
    this.#close();
    if (this.status !== 'lost') this.status = 'connecting';
    const scheme = location.protocol === 'https:' ? 'wss' : 'ws';
    const query = this.#job ? `?job=${encodeURIComponent(this.#job)}` : '';
    const text = token.get();
    const protocols = text ? ['penstock.v1', `bearer.${text}`] : ['penstock.v1'];
    const socket = new WebSocket(`${scheme}://${location.host}/api/v1/events${query}`, protocols);
    socket.onmessage = (message) => this.#take(JSON.parse(message.data));
    socket.onclose = () => this.#lost();
    this.#socket = socket;
  }

  #take(event: JobEvent): void {
    if (event.kind === 'subscribed') {
      const again = this.#wasOpen && this.status === 'lost';
      this.status = 'open';
      this.#wasOpen = true;
      this.#delay = FIRST_DELAY;
      if (again) this.#stale();
      return;
    }
    if (event.kind === 'missed') this.#stale();
    for (const handler of this.#handlers) handler(event);
  }

  #stale(): void {
    for (const handler of this.#staleHandlers) handler();
  }

  #lost(): void {
    this.#socket = null;
    this.status = 'lost';
    this.#wasOpen = true;
    if (this.#delay > FIRST_DELAY) this.onRefused();
    const delay = this.#delay * (0.8 + 0.4 * Math.random());
    this.#delay = Math.min(this.#delay * 2, LONGEST_DELAY);
    this.#timer = setTimeout(() => this.#connect(), delay);
  }
}

export const events = new Events();
