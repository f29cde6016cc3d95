// Writes packages/server/src/gateway/prices.generated.ts from the model catalogue of @earendil-works/pi-ai (MIT), which
// is not a dependency of Berth:  npm pack @earendil-works/pi-ai  →  unpack  →  node scripts/write-prices.mjs <folder>
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

// Our provider name -> the catalogue's file.
const files = {
  anthropic: 'anthropic',
  openai: 'openai',
  gemini: 'google',
  mistral: 'mistral',
  groq: 'groq',
  deepseek: 'deepseek',
  xai: 'xai',
  cerebras: 'cerebras',
  together: 'together',
  moonshot: 'moonshotai',
};

const folder = process.argv[2];
if (!folder) throw new Error('usage: node scripts/write-prices.mjs <unpacked package folder>');
const { version } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));

const micros = (dollars) => Math.round(dollars * 1_000_000);
const lines = [];
for (const [name, file] of Object.entries(files)) {
  const apis = JSON.parse(readFileSync(join(folder, 'dist/providers/data', `${file}.json`), 'utf8'));
  const rows = [];
  for (const models of Object.values(apis)) {
    for (const model of Object.values(models)) {
      const { input = 0, output = 0, cacheRead = 0, cacheWrite = 0 } = model.cost ?? {};
      // A price of 0 in the catalogue may mean "free" or "not known"; the two must not be mixed up.
      if (model.type !== 'chat' || input <= 0 || output <= 0) continue;
      // No cache price of its own: cached tokens cost what others do.
      const row = [
        model.id,
        micros(input),
        micros(cacheRead || input),
        micros(cacheWrite || input),
        micros(output),
      ];
      rows.push(`    ${JSON.stringify(row)},`);
    }
  }
  lines.push(`  [${JSON.stringify(name)}, table([`, ...rows.sort(), '  ])],');
}

const source = `// Written by scripts/write-prices.mjs; do not edit. Prices in micro-dollars per million tokens:
// [model, input, cached input, cache write, output].
//
// From the model catalogue of @earendil-works/pi-ai ${version}, MIT License, Copyright (c) Mario Zechner:
// Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated
// documentation files (the "Software"), to deal in the Software without restriction, including without limitation the
// rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to
// permit persons to whom the Software is furnished to do so, subject to the following conditions: The above copyright
// notice and this permission notice shall be included in all copies or substantial portions of the Software.
// THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE
// WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR
// COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR
// OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
import type { ModelPrice } from './prices.ts';

export const catalogVersion = 'pi-ai-${version}';

type Row = [model: string, input: number, cachedInput: number, cacheWrite: number, output: number];

function table(rows: Row[]): ReadonlyMap<string, ModelPrice> {
  return new Map(
    rows.map(([model, input, cachedInput, cacheWrite, output]) => [
      model,
      {
        input: BigInt(input),
        cachedInput: BigInt(cachedInput),
        cacheWrite: BigInt(cacheWrite),
        output: BigInt(output),
      },
    ]),
  );
}

export const catalogPrices: ReadonlyMap<string, ReadonlyMap<string, ModelPrice>> = new Map([
${lines.join('\n')}
]);
`;
writeFileSync(new URL('../packages/server/src/gateway/prices.generated.ts', import.meta.url), source);
