// Bytes that are no text.

export function fromBase64(text: string): Uint8Array {
  return Uint8Array.from(atob(text), (each) => each.charCodeAt(0));
}

/** More would stop the page. */
const MOST = 8_192;
const PER_LINE = 16;

/** Return bytes as offsets, hexadecimal numbers and what of them is ASCII. */
export function hexDump(data: Uint8Array): string {
  const made: string[] = [];
  for (let at = 0; at < Math.min(data.length, MOST); at += PER_LINE) {
    const part = [...data.subarray(at, at + PER_LINE)];
    const hex = part.map((each) => each.toString(16).padStart(2, '0')).join(' ');
    const text = part.map((each) => (each >= 32 && each < 127 ? String.fromCharCode(each) : '.')).join('');
    made.push(`${at.toString(16).padStart(6, '0')}  ${hex.padEnd(PER_LINE * 3)} ${text}`);
  }
  if (data.length > MOST) made.push(`… ${data.length - MOST} bytes more`);
  return made.join('\n');
}
