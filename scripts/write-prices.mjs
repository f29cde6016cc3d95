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
// No cache price of its own: such tokens cost what others do.
const prices = ({ input, output, cacheRead, cacheWrite }) =>
  [input, cacheRead || input, cacheWrite || input, output].map(micros);
const lines = [];
for (const [name, file] of Object.entries(files)) {
  const apis = JSON.parse(readFileSync(join(folder, 'dist/providers/data', `${file}.json`), 'utf8'));
  const rows = [];
  for (const models of Object.values(apis)) {
    for (const model of Object.values(models)) {
      const cost = model.cost ?? {};
      // A price of 0 in the catalogue may mean "free" or "not known"; the two must not be mixed up.
      if (model.type !== 'chat' || !(cost.input > 0) || !(cost.output > 0)) continue;
      const row = [model.id, ...prices(cost)];
      // Where there are several bounds, the first one is kept.
      const [tier] = cost.tiers ?? [];
      if (tier) row.push(tier.inputTokensAbove, ...prices(tier));
      rows.push(`    ${JSON.stringify(row)},`);
    }
  }
  lines.push(`  [${JSON.stringify(name)}, table([`, ...rows.sort(), '  ])],');
}

const source = `// Written by scripts/write-prices.mjs; do not edit. Prices in micro-dollars per million tokens:
// [model, input, cached input, cache write, output], and for long prompts: above how many input tokens, the same four.
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
import type { ModelPrice, TokenPrices } from './prices.ts';

export const catalogVersion = 'pi-ai-${version}';

type Four = [input: number, cachedInput: number, cacheWrite: number, output: number];
type Row = [model: string, ...Four] | [model: string, ...Four, aboveInputTokens: number, ...Four];

function four(input: number, cachedInput: number, cacheWrite: number, output: number): TokenPrices {
  return {
    input: BigInt(input),
    cachedInput: BigInt(cachedInput),
    cacheWrite: BigInt(cacheWrite),
    output: BigInt(output),
  };
}

function table(rows: Row[]): ReadonlyMap<string, ModelPrice> {
  return new Map(
    rows.map(([model, a, b, c, d, above, ...long]) => {
      const [e, f, g, h] = long as Four | [];
      const isTiered = above !== undefined && e !== undefined;
      return [
        model,
        {
          ...four(a, b, c, d),
          long: isTiered ? { aboveInputTokens: above, prices: four(e, f as number, g as number, h as number) } : null,
        },
      ];
    }),
  );
}

export const catalogPrices: ReadonlyMap<string, ReadonlyMap<string, ModelPrice>> = new Map([
${lines.join('\n')}
]);
`;
writeFileSync(new URL('../packages/server/src/gateway/prices.generated.ts', import.meta.url), source);
