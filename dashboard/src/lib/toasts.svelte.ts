// Short messages at the edge of the page: results of actions.

import { problemOf } from './api';

export interface Toast {
  id: number;
  kind: 'ok' | 'error' | 'info';
  text: string;
  hint: string | null;
}

const MOST = 4;
const SECONDS = { ok: 5, info: 5, error: 12 };

class Toasts {
  items = $state.raw<Toast[]>([]);
  #next = 1;

  add(kind: Toast['kind'], text: string, hint: string | null = null): void {
    const id = this.#next++;
    this.items = [...this.items.slice(1 - MOST), { id, kind, text, hint }];
    setTimeout(() => this.dismiss(id), SECONDS[kind] * 1_000);
  }

  ok(text: string): void {
    this.add('ok', text);
  }

  /** Show what was thrown. */
  fail(error: unknown): void {
    const problem = problemOf(error);
    this.add('error', problem.detail, problem.hint);
  }

  dismiss(id: number): void {
    this.items = this.items.filter((each) => each.id !== id);
  }
}

export const toasts = new Toasts();
