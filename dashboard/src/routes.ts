// Which page an address has. Pages are loaded when they are first opened.

import type { Component } from 'svelte';
import type { IconName } from './components/Icon.svelte';

type Load = () => Promise<{ default: Component }>;

const PAGES: Record<string, Load> = {
  '': () => import('./pages/Overview.svelte'),
  jobs: () => import('./pages/Job.svelte'),
  topics: () => import('./pages/Topics.svelte'),
  groups: () => import('./pages/Groups.svelte'),
  state: () => import('./pages/State.svelte'),
  submit: () => import('./pages/Submit.svelte'),
  sql: () => import('./pages/Sql.svelte'),
};

export interface NavigationItem {
  id: string;
  title: string;
  icon: IconName;
  /** Only for callers that may act. */
  operator?: boolean;
}

export const NAVIGATION: NavigationItem[] = [
  { id: '', title: 'Overview', icon: 'overview' },
  { id: 'topics', title: 'Topics', icon: 'topics' },
  { id: 'groups', title: 'Groups', icon: 'groups' },
  { id: 'state', title: 'State', icon: 'state' },
  { id: 'sql', title: 'SQL', icon: 'sql' },
  { id: 'submit', title: 'Submit', icon: 'submit', operator: true },
];

/** Return how to load the page of an address's first part; `#/jobs` without a job is the overview. */
export function pageOf(parts: string[]): Load | null {
  if (parts[0] === 'jobs' && parts.length === 1) return PAGES['']!;
  return PAGES[parts[0] ?? ''] ?? null;
}
