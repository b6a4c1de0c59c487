// Topics and consumer groups of the log.

import { get, lines, path, post, remove, withQuery, type Query } from './api';

export interface TopicFigures {
  messages: number;
  bytes: number | null;
  rate: number | null;
  retention_ms: number | null;
  cleanup_policy: string | null;
}

export interface TopicSummary extends TopicFigures {
  name: string;
  partitions: number;
  internal: boolean;
}

export interface Partition {
  partition: number;
  beginning: number;
  end: number;
  leader: number;
  replicas: number[];
  in_sync: number[];
  bytes: number | null;
}

export interface Topic extends TopicFigures {
  name: string;
  partitions: Partition[];
  config: Record<string, string | null>;
}

export interface Header {
  key: string;
  value: string | null;
  value_base64: string | null;
}

export interface Message {
  partition: number;
  offset: number;
  timestamp: string | null;
  key: string | null;
  key_base64: string | null;
  value: string | null;
  value_base64: string | null;
  headers: Header[];
  /** The value, if it is JSON. */
  json: unknown;
}

export interface MessageList {
  items: Message[];
  scanned: number;
  /** False: the limits of one request ended the search. */
  complete: boolean;
}

export interface GroupSummary {
  name: string;
  state: string;
  lag: number | null;
  members: number | null;
  topics: string[];
}

export interface GroupPartition {
  topic: string;
  partition: number;
  committed: number | null;
  end: number | null;
  lag: number | null;
  member: string | null;
}

export interface Group {
  name: string;
  state: string;
  lag: number;
  members: { member: string; client: string; host: string }[];
  partitions: GroupPartition[];
}

export interface NewTopic {
  name: string;
  partitions: number;
  config: Record<string, string>;
}

export interface NewRecord {
  key: string | null;
  value: string | null;
  headers: Record<string, string>;
  partition: number | null;
}

/** Where to set the committed offsets of a group: exactly one of `to`, `offset` and `time`. */
export interface Reset {
  topic: string;
  partition?: number;
  to?: 'beginning' | 'end';
  offset?: number;
  time?: string;
}

export type Tailed = { kind: 'message'; message: Message } | { kind: 'missed'; missed: number } | { kind: 'problem'; detail: string };

export const log = {
  topics: async (internal = false) => (await get<{ items: TopicSummary[] }>('/topics', { internal })).items,
  topic: (topic: string) => get<Topic>(path`/topics/${topic}`),
  create: (topic: NewTopic) => post<Topic>('/topics', topic),
  delete: (topic: string) => remove<void>(path`/topics/${topic}`),
  messages: (topic: string, query: Query, signal?: AbortSignal) =>
    get<MessageList>(path`/topics/${topic}/messages`, query, signal),
  produce: (topic: string, record: NewRecord) =>
    post<{ partition: number; offset: number }>(path`/topics/${topic}/messages`, record),
  groups: async () => (await get<{ items: GroupSummary[] }>('/groups')).items,
  group: (group: string) => get<Group>(path`/groups/${group}`),
  reset: (group: string, reset: Reset) => post<Group>(path`/groups/${group}/reset`, reset),
};

/** Yield records as they are written, until the signal ends it. */
export async function* tail(topic: string, query: Query, signal: AbortSignal): AsyncGenerator<Tailed> {
  let kind = 'message';
  for await (const line of lines(withQuery(path`/topics/${topic}/messages/stream`, query), { signal })) {
    if (line === '') kind = 'message';
    else if (line.startsWith('event: ')) kind = line.slice(7);
    else if (line.startsWith('data: ')) {
      const data = JSON.parse(line.slice(6));
      if (kind === 'missed') yield { kind, missed: data.missed };
      else if (kind === 'problem') yield { kind, detail: data.detail };
      else yield { kind: 'message', message: data };
    }
  }
}

/** Retention as text: "7 d", "for ever". */
export function retention(ms: number | null): string {
  if (ms === null) return '–';
  if (ms < 0) return 'for ever';
  const units = [['d', 86_400_000], ['h', 3_600_000], ['min', 60_000], ['s', 1_000]] as const;
  for (const [name, size] of units) {
    if (ms >= size && ms % size === 0) return `${ms / size} ${name}`;
  }
  return `${ms} ms`;
}
