// What the REST API returns: the models are in penstock/control/api.

export type Role = 'viewer' | 'operator' | 'admin';

export type JobState =
  | 'CREATED'
  | 'STARTING'
  | 'RUNNING'
  | 'FAILING'
  | 'RESTARTING'
  | 'FAILED'
  | 'STOPPING'
  | 'STOPPED'
  | 'CANCELLING'
  | 'CANCELED'
  | 'FINISHED';

export interface Page<T> {
  items: T[];
  next: string | null;
}

export interface Session {
  name: string;
  role: Role;
  token_required: boolean;
  version: string;
}

export interface JobError {
  type: string;
  message: string;
  hint: string | null;
  transient: boolean;
  exit_code: number | null;
}

export interface Job {
  id: string;
  name: string;
  state: JobState;
  version: number;
  running_version: number | null;
  restarts: number;
  pid: number | null;
  created_at: string;
  started_at: string | null;
  ended_at: string | null;
  updated_at: string | null;
  error: JobError | null;
  lag: number | null;
  rows_per_second: number | null;
  epoch: number | null;
  watermark: string | null;
  ended_input: boolean;
  checkpoint: string | null;
  waiting_for: string | null;
  restart_at: string | null;
  entry: string | null;
  until: string;
  parallelism: number | null;
  restart_policy: Record<string, unknown> | null;
  autoscaling: Record<string, unknown> | null;
  pool: string | null;
  memory: string | null;
  cores: number | null;
  settings: Record<string, unknown>;
  arguments: Record<string, unknown>;
}

export interface Counts {
  in: number;
  used: number;
  filtered: number;
  late: number;
  rejected: number;
  duplicate: number;
  dropped: number;
}

export interface JobNode {
  name: string;
  kind: string;
  label: string;
  lane: string | null;
  reason: string | null;
  inputs: string[];
  detail: string;
  columns: Record<string, string> | null;
  target: string | null;
  warning: string | null;
  stateful: boolean;
  state_rows: number | null;
  state_bytes: number | null;
  watermark: string | null;
  ended_input: boolean;
  rate: number | null;
  backpressure: number | null;
  counts: Counts | null;
}

export interface JobNodes {
  epoch: number | null;
  at: string | null;
  items: JobNode[];
}

export interface Sample {
  columns: string[];
  rows: Record<string, unknown>[];
  source: string;
  note: string | null;
}

export interface PlanDifference {
  added: string[];
  removed: string[];
  changed: { name: string; before: string; after: string }[];
  state: 'kept' | 'dropped' | 'refused';
  reasons: string[];
}

export interface Epoch {
  number: number;
  at: string;
  rows_in: number;
  rows_out: number;
  late: number;
  rejected: number;
  duration_ms: number;
  phases: Record<string, number>;
  watermark: string | null;
  ended_input: boolean;
}

export interface Checkpoint {
  epoch: number;
  location: string;
  at: string | null;
  duration_ms: number | null;
  state_rows: number | null;
  state_bytes: number | null;
}

export interface Savepoint {
  name: string;
  path: string | null;
  created_at: string;
  state: string;
  version: number | null;
}

export interface Version {
  number: number;
  entry: string | null;
  digest: string;
  created_at: string;
  created_by: string | null;
}

export interface Transition {
  seq: number;
  from: JobState | null;
  to: JobState;
  cause: string;
  at: string;
}

export interface JobException {
  at: string;
  type: string;
  message: string;
  hint: string | null;
  run: string | null;
}

export interface Command {
  id: string;
  job: string;
  kind: string;
  arguments: Record<string, unknown>;
  requested_by: string | null;
  requested_at: string;
  state: 'open' | 'done' | 'failed';
  message: string | null;
  done_at: string | null;
}

export interface Point {
  at: string;
  min: number;
  max: number;
  mean: number;
  last: number;
  count: number;
}

export interface Series {
  metric: string;
  node: string | null;
  resolution: number;
  points: Point[];
}

export interface Sparkline {
  job: string;
  points: [number, number][];
}

export interface Driver {
  run: string;
  pid: number | null;
  spare: boolean;
  pool: string | null;
  jobs: string[];
  memory_bytes: number | null;
  started_at: string | null;
  connected: boolean;
}

export interface Cluster {
  version: string;
  manager: string;
  role: 'active' | 'standby';
  active_manager: string | null;
  started_at: string;
  store: string;
  log: string | null;
  spark_master: string | null;
  cores: number;
  cores_used: number;
  memory_bytes: number;
  memory_used_bytes: number;
  jobs: Partial<Record<JobState, number>>;
  drivers: Driver[];
}

export interface Check {
  name: string;
  ok: boolean;
  detail: string | null;
}

export interface Readiness {
  ready: boolean;
  checks: Check[];
}

export interface JobEvent {
  seq: number;
  at: string;
  kind: string;
  job: string | null;
  [field: string]: unknown;
}
