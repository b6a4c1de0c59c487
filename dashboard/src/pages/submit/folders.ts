// A folder as a zip, made in the browser: the code and small texts that `penstock submit FOLDER` would send.

const SUFFIXES = ['py', 'sql', 'json', 'yaml', 'yml', 'toml', 'ini', 'cfg', 'txt', 'avsc', 'proto', 'j2'];
const NO_CODE = ['__pycache__', 'node_modules', 'build', 'dist', 'spark-warehouse'];
const MAIN = ['main.py', 'pipeline.py', 'job.py'];
const MOST_FILES = 2_000;
const MOST_BYTES = 20_000_000;

export interface ChosenFile {
  /** Path below the folder: `lib/prices.py`. */
  path: string;
  file: File;
}

/** Return the files of a folder that are code. */
export function codeOf(files: ChosenFile[]): ChosenFile[] {
  const environments = files.filter((each) => each.path.endsWith('pyvenv.cfg')).map((each) => each.path.slice(0, -'pyvenv.cfg'.length));
  return files.filter(({ path }) => {
    const parts = path.split('/');
    const hidden = parts.some((part) => part.startsWith('.')) || parts.slice(0, -1).some((part) => NO_CODE.includes(part));
    const suffix = path.split('.').pop() ?? '';
    return !hidden && SUFFIXES.includes(suffix) && !environments.some((folder) => path.startsWith(folder));
  });
}

/** Return what a form for folders gave: paths are relative to the folder. */
export function ofInput(list: FileList): { name: string; files: ChosenFile[] } {
  const files = [...list].map((file) => ({ path: file.webkitRelativePath.split('/').slice(1).join('/') || file.name, file }));
  return { name: list[0]?.webkitRelativePath.split('/')[0] || 'job', files };
}

/** Return what was dropped: a file, or all files below a folder. */
export async function ofDrop(transfer: DataTransfer): Promise<{ name: string; files: ChosenFile[]; folder: boolean } | null> {
  const entry = transfer.items[0]?.webkitGetAsEntry();
  if (!entry) return null;
  if (entry.isDirectory) return { name: entry.name, files: await below(entry as FileSystemDirectoryEntry, ''), folder: true };
  const file = await fileOf(entry as FileSystemFileEntry);
  return { name: file.name, files: [{ path: file.name, file }], folder: false };
}

async function below(folder: FileSystemDirectoryEntry, prefix: string): Promise<ChosenFile[]> {
  const reader = folder.createReader();
  const found: ChosenFile[] = [];
  for (;;) {
    const some = await new Promise<FileSystemEntry[]>((resolve, reject) => reader.readEntries(resolve, reject));
    if (!some.length) return found;
    for (const entry of some) {
      const path = prefix + entry.name;
      if (entry.isFile) found.push({ path, file: await fileOf(entry as FileSystemFileEntry) });
      else if (!NO_CODE.includes(entry.name) && !entry.name.startsWith('.')) found.push(...(await below(entry as FileSystemDirectoryEntry, `${path}/`)));
      if (found.length > 10 * MOST_FILES) return found;
    }
  }
}

function fileOf(entry: FileSystemFileEntry): Promise<File> {
  return new Promise((resolve, reject) => entry.file(resolve, reject));
}

/** Return the zip of a folder's code. */
export async function zipped(name: string, files: ChosenFile[]): Promise<File> {
  const size = files.reduce((sum, each) => sum + each.file.size, 0);
  if (!files.length) throw new Error(`${name} has no code`);
  if (files.length > MOST_FILES) throw new Error(`${name} has ${files.length} files of code; the limit is ${MOST_FILES}`);
  if (size > MOST_BYTES) throw new Error(`${name} has ${size} bytes of code and texts; the limit is ${MOST_BYTES}`);
  const { zipSync } = await import('fflate');
  const sorted = [...files].sort((a, b) => (a.path < b.path ? -1 : 1));
  const contents: Record<string, Uint8Array> = {};
  for (const { path, file } of sorted) contents[path] = new Uint8Array(await file.arrayBuffer());
  // Equal folders give equal bytes: every file has the same date.
  const zip = zipSync(contents, { mtime: new Date(1980, 0, 1) });
  return new File([zip as Uint8Array<ArrayBuffer>], `${name}.zip`, { type: 'application/zip' });
}

/** Return the Python file that a folder most likely starts with. */
export function mainOf(paths: string[]): string {
  const top = paths.filter((path) => path.endsWith('.py') && !path.includes('/'));
  return MAIN.find((name) => top.includes(name)) ?? (top.length === 1 ? top[0]! : '');
}
