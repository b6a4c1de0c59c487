// Commands to jobs: stored first and carried out after; their result is said when it is there.

import { api } from './api';
import { events } from './events.svelte';
import { toasts } from './toasts.svelte';
import type { Command } from './types';

const LOOK_MS = 5_000;
const LONGEST_MS = 180_000;

/** Say that a command was accepted, and its result once it has one. */
export function follow(command: Command, text: string): void {
  toasts.ok(`${text} requested`);
  const began = Date.now();
  const timer = setInterval(() => void look(), LOOK_MS);
  const end = events.on((event) => {
    if (event.kind === 'command' && event.command === command.id) settle(Boolean(event.ok), (event.message as string) ?? null);
  });

  async function look(): Promise<void> {
    if (Date.now() - began > LONGEST_MS) return finish();
    const found = await api.command(command.id).catch(() => null);
    if (found && found.state !== 'open') settle(found.state === 'done', found.message);
  }

  function settle(ok: boolean, message: string | null): void {
    finish();
    if (ok) toasts.ok(`${text}: done`);
    else toasts.add('error', `${text} failed`, message);
  }

  function finish(): void {
    clearInterval(timer);
    end();
  }
}
