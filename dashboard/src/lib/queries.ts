// Queries of the SQL console: lines of JSON as they come.

import { ApiProblem, lines } from './api';

export interface QuerySource {
  topic?: string;
  schema?: string;
  from?: 'beginning' | 'end';
  limit?: number;
  job?: string;
  node?: string;
}

export interface QueryRequest {
  sql: string;
  sources?: Record<string, QuerySource>;
  limit?: number;
  timeout?: number;
}

export interface QueryHead {
  columns: { name: string; type: string }[];
  explain: string;
  /** Code of a pipeline that runs this query as a job. */
  python: string;
  warnings: string[];
}

export interface QueryEnd {
  rows: number;
  scanned: number;
  truncated: boolean;
  ms: number;
}

export type Row = Record<string, unknown>;
export type Answer = { head: QueryHead } | { rows: Row[] } | { end: QueryEnd };

/** Run a query and yield its columns, chunks of rows, and at last how it went. */
export async function* answers(request: QueryRequest, signal?: AbortSignal): AsyncGenerator<Answer> {
  const headers = { 'Content-Type': 'application/json' };
  for await (const line of lines('/queries', { method: 'POST', headers, body: JSON.stringify(request), signal })) {
    if (!line) continue;
    const found = JSON.parse(line);
    if (found.problem) throw problem(found.problem);
    if (found.columns) yield { head: { warnings: [], ...found } };
    else if (found.done) yield { end: found };
    else yield { rows: found.rows };
  }
}

/** Return only the columns and the code of a query; its rows are not read. */
export async function headOf(request: QueryRequest): Promise<QueryHead> {
  const ending = new AbortController();
  try {
    for await (const answer of answers({ ...request, limit: 1 }, ending.signal)) {
      if ('head' in answer) return answer.head;
    }
  } finally {
    ending.abort();
  }
  throw new ApiProblem(500, 'Error', 'the query has no answer');
}

function problem(found: { status: number; title: string; detail: string; hint: string | null; node: string | null }): ApiProblem {
  return new ApiProblem(found.status, found.title, found.detail, found.hint, found.node);
}
