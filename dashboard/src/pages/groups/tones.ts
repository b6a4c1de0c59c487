// Colours of the states of consumer groups.

import type { Tone } from '../../components/Badge.svelte';

export function groupTone(state: string): Tone {
  const known: Record<string, Tone> = { stable: 'green', empty: 'grey', dead: 'red', unknown: 'grey' };
  return known[state.toLowerCase()] ?? 'amber';
}
