// Who uses this page, and what they may do.

import { api, ApiProblem, onRefused, problemOf } from './api';
import { events } from './events.svelte';
import { token } from './token';
import type { Role, Session } from './types';

const ROLES: Role[] = ['viewer', 'operator', 'admin'];

class CurrentSession {
  state = $state<'loading' | 'login' | 'ready' | 'offline'>('loading');
  who = $state.raw<Session | null>(null);
  problem = $state.raw<ApiProblem | null>(null);

  constructor() {
    // A browser does not say why a WebSocket was refused; a request does.
    events.onRefused = () => void api.session().catch(() => {});
    onRefused(() => {
      if (this.state === 'ready') this.leave('the token is no longer valid');
    });
  }

  /** Whether this caller has a role, or a higher one. The server checks it too. */
  may(role: Role): boolean {
    return this.who !== null && ROLES.indexOf(this.who.role) >= ROLES.indexOf(role);
  }

  /** Ask the server who we are. */
  async open(): Promise<void> {
    try {
      this.who = await api.session();
      this.problem = null;
      this.state = 'ready';
    } catch (error) {
      const problem = problemOf(error);
      this.problem = problem;
      this.state = problem.status === 401 ? 'login' : 'offline';
    }
  }

  /** Use a token; a wrong one is forgotten and its problem is shown. */
  async enter(text: string): Promise<void> {
    token.set(text);
    await this.open();
    if (this.state !== 'ready') token.forget();
  }

  leave(reason: string | null = null): void {
    token.forget();
    events.stop();
    this.who = null;
    this.problem = reason ? new ApiProblem(401, 'AccessDenied', reason) : null;
    this.state = 'login';
  }
}

export const session = new CurrentSession();
