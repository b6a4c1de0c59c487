// A query of the console: what was asked, what has come, and the queries before it, which this tab remembers.

import { problemOf, type ApiProblem } from '../../lib/api';
import { answers, type QueryEnd, type QueryHead, type QueryRequest, type Row } from '../../lib/queries';

const KEY = 'penstock.sql';
const MOST_HISTORY = 30;

export class Console {
  state = $state<'idle' | 'running'>('idle');
  head = $state.raw<QueryHead | null>(null);
  rows = $state.raw<Row[]>([]);
  end = $state.raw<QueryEnd | null>(null);
  problem = $state.raw<ApiProblem | null>(null);
  history = $state.raw<string[]>(remembered());
  #ending: AbortController | null = null;

  async run(request: QueryRequest): Promise<void> {
    this.stop();
    const ending = (this.#ending = new AbortController());
    this.#remember(request.sql);
    this.state = 'running';
    this.head = this.end = this.problem = null;
    this.rows = [];
    try {
      for await (const answer of answers(request, ending.signal)) {
        if (this.#ending !== ending) return;
        if ('head' in answer) this.head = answer.head;
        else if ('rows' in answer) this.rows = [...this.rows, ...answer.rows];
        else this.end = answer.end;
      }
    } catch (error) {
      if (!ending.signal.aborted) this.problem = problemOf(error);
    }
    if (this.#ending === ending) this.state = 'idle';
  }

  stop(): void {
    this.#ending?.abort();
    this.#ending = null;
    this.state = 'idle';
  }

  #remember(sql: string): void {
    this.history = [sql, ...this.history.filter((each) => each !== sql)].slice(0, MOST_HISTORY);
    sessionStorage.setItem(KEY, JSON.stringify(this.history));
  }
}

function remembered(): string[] {
  try {
    const found: unknown = JSON.parse(sessionStorage.getItem(KEY) ?? '[]');
    return Array.isArray(found) ? found.filter((each) => typeof each === 'string') : [];
  } catch {
    return [];
  }
}
