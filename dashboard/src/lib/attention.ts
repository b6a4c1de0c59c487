// What a person should look at first, the worst first. Pure.

import { ago, short } from './format';
import type { Check, Job } from './types';

export interface Concern {
  key: string;
  tone: 'red' | 'amber' | 'blue';
  title: string;
  text: string;
  hint: string | null;
  job: Job | null;
}

const LONG_STARTING_MS = 60_000;
const MUCH_LAG_SECONDS = 60;

/** Return why a job needs attention; null if it does not. */
export function concernOf(job: Job, now: number): Concern | null {
  const of = (tone: Concern['tone'], text: string, hint: string | null = null): Concern => ({
    key: job.id, tone, title: job.name, text, hint, job,
  });
  const error = job.error ? `${job.error.type}: ${job.error.message}` : '';
  if (job.state === 'FAILED') return of('red', error || 'failed', job.error?.hint ?? null);
  if (job.state === 'FAILING') return of('red', error || 'is failing', job.error?.hint ?? null);
  if (job.state === 'RESTARTING') {
    const when = job.restart_at ? `; starts again ${ago(job.restart_at, now)}` : '';
    return of('amber', `${error || 'restarting'}${when}`, job.error?.hint ?? null);
  }
  if (job.state === 'CREATED' && job.waiting_for) return of('amber', `waits: ${job.waiting_for}`);
  if (job.state === 'STARTING' && job.started_at && now - Date.parse(job.started_at) > LONG_STARTING_MS) {
    return of('blue', `is starting for ${ago(job.started_at, now).replace(' ago', '')}`);
  }
  if (job.state === 'RUNNING' && job.lag && job.lag > MUCH_LAG_SECONDS * Math.max(job.rows_per_second ?? 0, 100)) {
    return of('amber', `is behind: ${short(job.lag)} rows are not read yet, at ${short(job.rows_per_second ?? 0)} rows/s`);
  }
  return null;
}

/** Return all concerns: checks of the manager that fail, then jobs. */
export function concerns(jobs: Job[], checks: Check[], now: number): Concern[] {
  const failed = checks
    .filter((each) => !each.ok)
    .map((each): Concern => ({
      key: `check ${each.name}`, tone: 'red', title: each.name, text: each.detail ?? 'does not answer', hint: null, job: null,
    }));
  const found = jobs.map((job) => concernOf(job, now)).filter((each) => each !== null);
  const order = ['red', 'amber', 'blue'];
  return [...failed, ...found].sort((a, b) => order.indexOf(a.tone) - order.indexOf(b.tone));
}
