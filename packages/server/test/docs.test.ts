import assert from 'node:assert/strict';
import { existsSync, globSync, readFileSync, readdirSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { extraCaFiles } from '../src/host-checks.ts';

const root = fileURLToPath(new URL('../../../', import.meta.url));
const pages = [...globSync('*.md', { cwd: root }), ...globSync('docs/**/*.md', { cwd: root })].sort();

interface Link {
  page: string;
  /** From the root of the repository. */
  target: string;
  anchor: string;
}

const read = (page: string): string => readFileSync(join(root, page), 'utf8');

/** Links to files of this repository; what stands in code is no link. */
function links(page: string): Link[] {
  const prose = read(page)
    .replace(/^```[\s\S]*?^```/gm, '')
    .replace(/`[^`\n]*`/g, '');
  return [...prose.matchAll(/\]\(([^)\s]+)\)/g)].flatMap(([, url = '']) => {
    if (/^[a-z]+:/.test(url)) return [];
    const [path = '', anchor = ''] = url.split('#');
    return [{ page, target: path === '' ? page : normalize(join(dirname(page), path)), anchor }];
  });
}

/** As GitHub makes them of headings. */
function anchors(page: string): string[] {
  return [...read(page).matchAll(/^#{1,6} (.*)$/gm)].map(([, heading = '']) =>
    heading
      .toLowerCase()
      .replace(/[^\p{L}\p{N} _-]/gu, '')
      .replaceAll(' ', '-'),
  );
}

test('every link between the pages leads to a file, and to a heading where it names one', () => {
  const found = pages.flatMap(links);
  assert.ok(found.length > 10);
  const broken = found.filter(
    ({ target, anchor }) =>
      !existsSync(join(root, target)) ||
      (anchor !== '' && target.endsWith('.md') && !anchors(target).includes(anchor)),
  );
  assert.deepEqual(broken, []);
});

test('every page of docs/ can be reached from the README', () => {
  const reached = new Set(['README.md']);
  for (const page of reached) {
    for (const { target } of links(page))
      if (target.endsWith('.md') && pages.includes(target)) reached.add(target);
  }
  const topics = pages.filter((page) => /^docs\/[^/]+\.md$/.test(page));
  assert.deepEqual(
    topics.filter((page) => !reached.has(page)),
    [],
  );
});

test('no two decisions have the same number', () => {
  const numbers = readdirSync(join(root, 'docs/decisions')).map(
    (name) => /^(\d{4})-/.exec(name)?.[1] ?? name,
  );
  assert.deepEqual(
    numbers.filter((number, at) => numbers.indexOf(number) !== at),
    [],
  );
});

test('the variables of authorities of one’s own are named where repositories are configured and where secrets are brokered', () => {
  const names: string[] = [];
  extraCaFiles(new Proxy({}, { get: (_env, name) => void names.push(String(name)) }));
  assert.ok(names.length > 1);
  const about = (page: string, link: string) =>
    read(page)
      .split('\n\n')
      .filter((text) => text.includes(link) && names.every((name) => text.includes(`\`${name}\``)));
  assert.equal(about('docs/configuration.md', '](secrets.md#certificates)').length, 1);
  assert.equal(about('docs/secrets.md', '](configuration.md)').length, 1);
});

test('where the command line’s exec is shown, so is how it gets what is piped into it', () => {
  const shown = pages.filter((page) => /\bexec AGENT\b/.test(read(page)));
  assert.ok(shown.length >= 2);
  for (const page of shown) assert.match(read(page), /\| berth sandbox exec AGENT -i /, page);
});
