// What is being submitted: kept while other pages are opened, so that nothing has to be chosen twice.

export type Kind = 'file' | 'folder' | 'sql';

class Draft {
  kind = $state<Kind>('file');
  /** The chosen file, or the zip of the chosen folder. */
  source = $state.raw<File | null>(null);
  /** What was chosen: names and sizes. */
  contents = $state.raw<{ path: string; size: number }[]>([]);
  /** Text of a single Python file, or the code that was made of a query. */
  code = $state('');
  sql = $state('');
  target = $state('');

  name = $state('');
  entry = $state('');
  values = $state<{ name: string; value: string }[]>([]);
  settings = $state('');
  parallelism = $state<number | null>(null);
  until = $state<'stopped' | 'drained' | 'ended'>('stopped');
  restarts = $state('');
  pool = $state('');
  memory = $state('');

  /** Return the file that is sent: of a query, its code. */
  get file(): File | null {
    if (this.kind === 'sql') return this.code ? new File([this.code], 'query.py', { type: 'text/x-python' }) : null;
    return this.source;
  }

  clear(): void {
    this.source = null;
    this.contents = [];
    this.code = '';
    this.name = this.entry = '';
  }

  /** Return the form of `POST /plans`, or with `all` that of `POST /jobs`. */
  form(all: boolean): FormData {
    const form = new FormData();
    if (this.file) form.set('file', this.file, this.file.name);
    if (this.entry) form.set('entry', this.entry);
    const named = this.values.filter((each) => each.name);
    if (named.length) form.set('arguments', JSON.stringify(Object.fromEntries(named.map((each) => [each.name, each.value]))));
    if (this.settings.trim()) form.set('settings', this.settings);
    if (!all) return form;
    form.set('until', this.until);
    const texts = { name: this.name, restart_policy: this.restarts, pool: this.pool, memory: this.memory };
    for (const [field, value] of Object.entries(texts)) if (value) form.set(field, value);
    if (this.parallelism) form.set('parallelism', String(this.parallelism));
    return form;
  }
}

export const draft = new Draft();
