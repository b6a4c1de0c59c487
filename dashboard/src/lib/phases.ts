// The phases of an epoch, as Spark names them, in the order in which they happen.

import type { Epoch } from './types';

export const PHASES = [
  { id: 'plan', title: 'plan', color: '--violet', names: ['latestOffset', 'getBatch', 'queryPlanning'] },
  { id: 'run', title: 'run', color: '--accent', names: ['addBatch'] },
  { id: 'checkpoint', title: 'checkpoint', color: '--amber-bright', names: ['walCommit', 'commitOffsets', 'commitBatch'] },
] as const;

export interface Phase {
  id: string;
  title: string;
  color: string;
  ms: number;
  /** Of the whole epoch, from 0 to 1. */
  share: number;
}

/** Return how long each phase of an epoch took; an epoch without phases has run only. */
export function phasesOf(epoch: Epoch): Phase[] {
  const found = PHASES.map((phase) => ({ ...phase, ms: phase.names.reduce((sum, name) => sum + (Number(epoch.phases[name]) || 0), 0) }));
  const total = found.reduce((sum, phase) => sum + phase.ms, 0);
  if (!total) return found.map((phase) => ({ ...phase, ms: phase.id === 'run' ? epoch.duration_ms : 0, share: phase.id === 'run' ? 1 : 0 }));
  return found.map((phase) => ({ ...phase, share: phase.ms / total }));
}
