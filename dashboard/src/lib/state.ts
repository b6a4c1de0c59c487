// State of jobs, and rows that jobs diverted: rejected and late ones.

import { get, path, post, type Query } from './api';

export interface StateTable {
  node: string;
  epoch: number;
  columns: string[];
  rows: Record<string, unknown>[];
  offsets: Record<string, Record<string, unknown>>;
  /** Whether the limit left rows out. */
  more: boolean;
}

export type DivertedKind = 'rejected' | 'late';

export interface DivertedRow {
  at: string | null;
  node: string | null;
  reason: string | null;
  source: string | null;
  /** `TOPIC/PARTITION@OFFSET` or `FILE:BYTE`. */
  position: string | null;
  epoch: number | null;
  raw_base64: string | null;
  row: Record<string, unknown> | null;
}

export interface Diverted {
  kind: DivertedKind;
  target: string | null;
  items: DivertedRow[];
  note: string | null;
}

export interface Replayed {
  replayed: number;
  to: string | null;
  /** Rows that were replayed before. */
  before: number;
  /** Rows that cannot be replayed. */
  lost: { node: string; reason: string; rows: number }[];
}

export const state = {
  table: (job: string, query: Query, signal?: AbortSignal) => get<StateTable>(path`/jobs/${job}/state`, query, signal),
  diverted: (job: string, kind: DivertedKind, limit: number) => get<Diverted>(path`/jobs/${job}/diverted`, { kind, limit }),
  replay: (job: string, kind: DivertedKind) => post<Replayed>(path`/jobs/${job}/replay`, { kind }),
};
