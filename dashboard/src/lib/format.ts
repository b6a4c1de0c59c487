// Numbers, sizes and times as text. What is not known is an en dash.

export const NONE = '–';
type Maybe = number | null | undefined;

const exact = new Intl.NumberFormat('en-US', { maximumFractionDigits: 2 });
const whole = new Intl.NumberFormat('en-US', { maximumFractionDigits: 0 });

/** 1234567 -> "1,234,567" */
export function count(value: Maybe): string {
  return value === null || value === undefined || !Number.isFinite(value) ? NONE : exact.format(value);
}

/** 1234567 -> "1.23M"; below 10,000 it is exact. */
export function short(value: Maybe): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return NONE;
  const size = Math.abs(value);
  if (size < 10_000) return size < 100 && !Number.isInteger(value) ? digits(value) : whole.format(value);
  for (const [unit, name] of [[1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e3, 'k']] as const) {
    if (size >= unit) return digits(value / unit) + name;
  }
  return whole.format(value);
}

function digits(value: number): string {
  const size = Math.abs(value);
  return value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 2).replace(/\.0+$/, '');
}

/** Rows per second: "1.5k/s". */
export function rate(value: Maybe): string {
  return value === null || value === undefined ? NONE : `${short(value)}/s`;
}

/** 1536 -> "1.5 KiB" */
export function bytes(value: Maybe): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return NONE;
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let size = value;
  let unit = 0;
  while (Math.abs(size) >= 1024 && unit < units.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? whole.format(size) : digits(size)} ${units[unit]}`;
}

/** Milliseconds: "240 ms", "1.2 s", "3 min 20 s", "2 h 5 min", "3 d 4 h". */
export function duration(ms: Maybe): string {
  if (ms === null || ms === undefined || !Number.isFinite(ms)) return NONE;
  if (ms < 1) return ms <= 0 ? '0 ms' : '<1 ms';
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1_000;
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1).replace('.0', '') : Math.round(seconds)} s`;
  return pair(seconds);
}

function pair(seconds: number): string {
  const units = [['d', 86_400], ['h', 3_600], ['min', 60], ['s', 1]] as const;
  const first = units.findIndex(([, size]) => seconds >= size);
  const [name, size] = units[first]!;
  const next = units[first + 1];
  const rest = next ? Math.floor((seconds % size) / next[1]) : 0;
  return `${Math.floor(seconds / size)} ${name}${rest && next ? ` ${rest} ${next[0]}` : ''}`;
}

/** How long ago: "now", "12 s ago", "3 min ago"; a time to come is "in 5 s". */
export function ago(time: string | null | undefined, now: number): string {
  if (!time) return NONE;
  const seconds = (now - Date.parse(time)) / 1_000;
  if (Math.abs(seconds) < 1.5) return 'now';
  const text = coarse(Math.abs(seconds));
  return seconds < 0 ? `in ${text}` : `${text} ago`;
}

function coarse(seconds: number): string {
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3_600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3_600)} h`;
  return `${Math.floor(seconds / 86_400)} d`;
}

const clock = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit' });
const day = new Intl.DateTimeFormat('en-GB', {
  year: 'numeric', month: 'short', day: '2-digit', hour: '2-digit', minute: '2-digit', second: '2-digit',
});

/** Time of day, local. */
export function timeOfDay(time: string | number | null | undefined): string {
  return time === null || time === undefined ? NONE : clock.format(new Date(time));
}

/** Date and time, local. */
export function dateTime(time: string | null | undefined): string {
  return time ? day.format(new Date(time)) : NONE;
}

/** A watermark: at the end of input there is none any more. */
export function watermark(of: { watermark: string | null; ended_input: boolean }): string {
  return of.ended_input ? 'end of input' : dateTime(of.watermark);
}

/** 0.123 -> "12%" */
export function percent(value: Maybe): string {
  return value === null || value === undefined ? NONE : `${Math.round(value * 100)}%`;
}

/** Any JSON value in one line. */
export function inline(value: unknown): string {
  if (value === null || value === undefined) return 'null';
  return typeof value === 'string' ? value : JSON.stringify(value);
}
