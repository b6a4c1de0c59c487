// Series of metrics as columns for charts: one list of times, and a value of each series at each time. Pure.

import type { Series } from './types';

export interface Columns {
  times: number[];
  /** Values by name of the metric; null where there is none. */
  values: Record<string, (number | null)[]>;
}

/** Return series of a job (not of its nodes) on the times that any of them has. */
export function columnsOf(series: Series[], field: 'mean' | 'max' | 'last' = 'mean'): Columns {
  const whole = series.filter((each) => each.node === null);
  const times = [...new Set(whole.flatMap((each) => each.points.map((point) => Date.parse(point.at) / 1_000)))].sort((a, b) => a - b);
  const place = new Map(times.map((at, index) => [at, index]));
  const values: Columns['values'] = {};
  for (const each of whole) {
    const column: (number | null)[] = new Array(times.length).fill(null);
    // Totals only grow: their last value says most.
    const used = each.metric.endsWith('_total') ? 'last' : field;
    for (const point of each.points) column[place.get(Date.parse(point.at) / 1_000)!] = point[used];
    values[each.metric] = column;
  }
  return { times, values };
}

/** Return how much a total grew per second; a total that starts over (a new run) counts from zero. */
export function perSecond(times: number[], totals: (number | null)[] | undefined): (number | null)[] {
  let before: { at: number; value: number } | null = null;
  return times.map((at, index) => {
    const value = totals?.[index];
    if (value === null || value === undefined) return null;
    const last = before;
    before = { at, value };
    if (!last) return null;
    return Math.max(value < last.value ? value : value - last.value, 0) / (at - last.at);
  });
}

/** Return a column, or nulls if there is none. */
export function column(columns: Columns, metric: string, factor = 1): (number | null)[] {
  const found = columns.values[metric];
  return found ? found.map((value) => (value === null ? null : value * factor)) : new Array(columns.times.length).fill(null);
}
