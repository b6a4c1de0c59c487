// Colours for JSON, SQL and Python: a text as tokens, each with a class. Nothing here makes markup.

export interface Token {
  text: string;
  kind: 'plain' | 'key' | 'string' | 'number' | 'word' | 'comment' | 'function';
}

export type Language = 'json' | 'sql' | 'python' | 'text';

const SQL_WORDS =
  'select|from|where|group|by|having|order|limit|as|and|or|not|in|is|null|like|between|case|when|then|else|end|join|left|right|full|inner|outer|on|union|all|distinct|with|desc|asc|lateral|view|interval|true|false|cast|over|partition|window|exists|using|values|explode|filter|rlike';
const PYTHON_WORDS =
  'import|from|def|class|return|yield|if|elif|else|for|while|in|is|not|and|or|None|True|False|as|with|try|except|finally|raise|lambda|pass|break|continue|async|await|global|del|assert';

const RULES: Record<Exclude<Language, 'text'>, [Token['kind'], string][]> = {
  json: [
    ['key', '"(?:[^"\\\\]|\\\\.)*"(?=\\s*:)'],
    ['string', '"(?:[^"\\\\]|\\\\.)*"'],
    ['number', '-?\\d+(?:\\.\\d+)?(?:[eE][+-]?\\d+)?'],
    ['word', '\\b(?:true|false|null)\\b'],
  ],
  sql: [
    ['comment', '--[^\\n]*|/\\*[\\s\\S]*?\\*/'],
    ['string', "'(?:[^'\\\\]|\\\\.|'')*'?|\"[^\"]*\"?"],
    ['number', '\\b\\d+(?:\\.\\d+)?\\b'],
    ['word', `\\b(?:${SQL_WORDS})\\b`],
    ['function', '\\b[a-z_]\\w*(?=\\()'],
    ['key', '`[^`]*`'],
  ],
  python: [
    ['comment', '#[^\\n]*'],
    ['string', '[rfb]?(?:"""[\\s\\S]*?(?:"""|$)|\'\'\'[\\s\\S]*?(?:\'\'\'|$)|"(?:[^"\\\\\\n]|\\\\.)*"?|\'(?:[^\'\\\\\\n]|\\\\.)*\'?)'],
    ['number', '\\b\\d[\\d_]*(?:\\.\\d+)?\\b'],
    ['word', `\\b(?:${PYTHON_WORDS})\\b`],
    ['function', '\\b[A-Za-z_]\\w*(?=\\()'],
  ],
};

const PATTERNS = Object.fromEntries(
  Object.entries(RULES).map(([language, rules]) => [
    language,
    new RegExp(rules.map(([, source]) => `(${source})`).join('|'), language === 'sql' ? 'gi' : 'g'),
  ]),
);

/** Longer texts are shown in one colour: tokens of a megabyte would stop the page. */
const LONGEST = 60_000;

/** Return a text as tokens; together they are the text. */
export function tokens(text: string, language: Language): Token[] {
  if (language === 'text' || text.length > LONGEST) return [{ text, kind: 'plain' }];
  const found: Token[] = [];
  let end = 0;
  for (const match of text.matchAll(PATTERNS[language]!)) {
    if (match.index > end) found.push({ text: text.slice(end, match.index), kind: 'plain' });
    const which = match.slice(1).findIndex((group) => group !== undefined);
    found.push({ text: match[0], kind: RULES[language][which]![0] });
    end = match.index + match[0].length;
  }
  if (end < text.length) found.push({ text: text.slice(end), kind: 'plain' });
  return found;
}
