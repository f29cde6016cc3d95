// Written by scripts/write-prices.mjs; do not edit. Prices in micro-dollars per million tokens:
// [model, input, cached input, cache write, output], and for long prompts: above how many input tokens, the same four.
//
// From the model catalogue of @earendil-works/pi-ai 1.6.0, MIT License, Copyright (c) Mario Zechner:
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

export const catalogVersion = 'pi-ai-1.6.0';

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
  ["anthropic", table([
    ["claude-fable-5",10000000,1000000,12500000,50000000],
    ["claude-fable-5-1",10000000,250000,12500000,50000000],
    ["claude-fable-5-2",8000000,200000,10000000,40000000],
    ["claude-haiku-4-5",1000000,100000,1250000,5000000],
    ["claude-haiku-4-5-20251001",1000000,100000,1250000,5000000],
    ["claude-haiku-5-5",100000,10000,125000,500000,100000,500000,50000,625000,2500000],
    ["claude-opus-4-5",5000000,500000,6250000,25000000],
    ["claude-opus-4-5-20251101",5000000,500000,6250000,25000000],
    ["claude-opus-4-6",5000000,500000,6250000,25000000],
    ["claude-opus-4-7",5000000,500000,6250000,25000000],
    ["claude-opus-4-8",5000000,500000,6250000,25000000],
    ["claude-opus-5",5000000,500000,6250000,25000000],
    ["claude-opus-5-5",4000000,200000,5000000,20000000],
    ["claude-sonnet-4-5",3000000,300000,3750000,15000000],
    ["claude-sonnet-4-5-20250929",3000000,300000,3750000,15000000],
    ["claude-sonnet-4-6",3000000,300000,3750000,15000000],
    ["claude-sonnet-5",2000000,200000,2500000,10000000],
    ["claude-sonnet-5-5",2000000,100000,2500000,10000000],
  ])],
  ["openai", table([
    ["chat-latest",5000000,500000,5000000,30000000],
    ["gpt-4",30000000,30000000,30000000,60000000],
    ["gpt-4-turbo",10000000,10000000,10000000,30000000],
    ["gpt-4.1",2000000,500000,2000000,8000000],
    ["gpt-4.1-mini",400000,100000,400000,1600000],
    ["gpt-4.1-nano",100000,25000,100000,400000],
    ["gpt-4o",2500000,1250000,2500000,10000000],
    ["gpt-4o-2024-05-13",5000000,5000000,5000000,15000000],
    ["gpt-4o-2024-08-06",2500000,1250000,2500000,10000000],
    ["gpt-4o-2024-11-20",2500000,1250000,2500000,10000000],
    ["gpt-4o-mini",150000,75000,150000,600000],
    ["gpt-5",1250000,125000,1250000,10000000],
    ["gpt-5-chat-latest",1250000,125000,1250000,10000000],
    ["gpt-5-mini",250000,25000,250000,2000000],
    ["gpt-5-nano",50000,5000,50000,400000],
    ["gpt-5-pro",15000000,15000000,15000000,120000000],
    ["gpt-5.1",1250000,125000,1250000,10000000],
    ["gpt-5.2",1750000,175000,1750000,14000000],
    ["gpt-5.2-pro",21000000,21000000,21000000,168000000],
    ["gpt-5.3-codex",1750000,175000,1750000,14000000],
    ["gpt-5.3-codex-spark",1750000,175000,1750000,14000000],
    ["gpt-5.4",2500000,250000,2500000,15000000,272000,5000000,500000,5000000,22500000],
    ["gpt-5.4-mini",750000,75000,750000,4500000],
    ["gpt-5.4-nano",200000,20000,200000,1250000],
    ["gpt-5.4-pro",30000000,30000000,30000000,180000000,272000,60000000,60000000,60000000,270000000],
    ["gpt-5.5",5000000,500000,5000000,30000000,272000,10000000,1000000,10000000,45000000],
    ["gpt-5.5-pro",30000000,30000000,30000000,180000000,272000,60000000,60000000,60000000,270000000],
    ["gpt-5.6-cyber",12500000,1250000,15625000,75000000],
    ["gpt-5.6-luna",200000,20000,250000,1200000,272000,400000,40000,500000,1800000],
    ["gpt-5.6-sol",4000000,400000,5000000,20000000,272000,8000000,800000,10000000,30000000],
    ["gpt-5.6-terra",2000000,200000,2500000,12000000,272000,4000000,400000,5000000,18000000],
    ["gpt-6-astra",10000000,1000000,12500000,50000000,272000,20000000,2000000,25000000,75000000],
    ["gpt-6-cyber",20000000,2000000,25000000,100000000],
    ["gpt-6-luna",100000,10000,125000,500000,272000,200000,20000,250000,750000],
    ["gpt-6-sol",2000000,200000,2500000,10000000,272000,4000000,400000,5000000,15000000],
    ["gpt-6.1-sol",2000000,100000,2500000,10000000,272000,4000000,200000,5000000,15000000],
    ["gpt-6.1-terra",1000000,50000,1250000,5000000,272000,2000000,100000,2500000,7500000],
    ["gpt-6.2-astra",8000000,400000,10000000,40000000,272000,16000000,800000,20000000,60000000],
    ["gpt-6.2-sol",2000000,100000,2500000,10000000,272000,4000000,200000,5000000,15000000],
    ["gpt-daybreak-blue-latest",4000000,400000,5000000,20000000,272000,8000000,800000,10000000,30000000],
    ["gpt-daybreak-red-latest",12500000,1250000,15625000,75000000],
    ["o1",15000000,7500000,15000000,60000000],
    ["o1-pro",150000000,150000000,150000000,600000000],
    ["o3",2000000,500000,2000000,8000000],
    ["o3-mini",1100000,550000,1100000,4400000],
    ["o3-pro",20000000,20000000,20000000,80000000],
    ["o4-mini",1100000,275000,1100000,4400000],
  ])],
  ["gemini", table([
    ["deep-research-max-preview-04-2026",2000000,200000,2000000,12000000,200000,4000000,400000,4000000,18000000],
    ["deep-research-preview-04-2026",2000000,200000,2000000,12000000,200000,4000000,400000,4000000,18000000],
    ["gemini-2.5-computer-use-preview-10-2025",1250000,1250000,1250000,10000000],
    ["gemini-2.5-flash",300000,30000,300000,2500000],
    ["gemini-2.5-flash-lite",100000,10000,100000,400000],
    ["gemini-2.5-pro",1250000,125000,1250000,10000000,200000,2500000,250000,2500000,15000000],
    ["gemini-3-flash-preview",500000,50000,500000,3000000],
    ["gemini-3.1-flash-lite",250000,25000,250000,1500000],
    ["gemini-3.1-flash-lite-preview",250000,25000,250000,1500000],
    ["gemini-3.1-pro-preview",2000000,200000,2000000,12000000,200000,4000000,400000,4000000,18000000],
    ["gemini-3.1-pro-preview-customtools",2000000,200000,2000000,12000000,200000,4000000,400000,4000000,18000000],
    ["gemini-3.5-flash",1500000,150000,1500000,9000000],
    ["gemini-3.5-flash-lite",300000,30000,300000,2500000],
    ["gemini-3.6-flash",750000,75000,750000,3750000],
    ["gemini-3.7-flash",750000,75000,750000,3750000],
    ["gemini-3.8-flash",750000,75000,750000,3750000],
    ["gemini-4-argon",2000000,100000,2000000,10000000],
    ["gemini-4-carbon",2000000,100000,2000000,10000000],
    ["gemini-4-hydrogen",1500000,75000,1500000,7500000],
    ["gemini-4-neon",3000000,150000,3000000,15000000],
    ["gemini-flash-latest",1500000,150000,1500000,9000000],
    ["gemini-flash-lite-latest",250000,25000,250000,1500000],
    ["gemini-pro-latest",2000000,200000,2000000,12000000,200000,4000000,400000,4000000,18000000],
    ["gemini-robotics-er-2-preview",1000000,100000,1000000,5000000],
  ])],
  ["mistral", table([
    ["codestral-2508",300000,30000,300000,900000],
    ["codestral-latest",300000,30000,300000,900000],
    ["deepseek-v4-1-flash-1017",300000,7000,300000,1200000],
    ["devstral-2512",400000,40000,400000,2000000],
    ["devstral-latest",400000,40000,400000,2000000],
    ["devstral-medium-latest",400000,40000,400000,2000000],
    ["glm-5-2",1400000,140000,1400000,4400000],
    ["magistral-medium-latest",2000000,200000,2000000,5000000],
    ["ministral-14b-2512",200000,20000,200000,200000],
    ["ministral-3b-2512",100000,10000,100000,100000],
    ["ministral-3b-latest",100000,10000,100000,100000],
    ["ministral-8b-2512",150000,15000,150000,150000],
    ["ministral-8b-latest",150000,15000,150000,150000],
    ["mistral-large-2512",500000,50000,500000,1500000],
    ["mistral-large-4",700000,70000,700000,2100000],
    ["mistral-large-4-0-8",700000,70000,700000,2100000],
    ["mistral-large-latest",700000,70000,700000,2100000],
    ["mistral-medium-2505",400000,40000,400000,2000000],
    ["mistral-medium-2508",400000,40000,400000,2000000],
    ["mistral-medium-2604",1500000,150000,1500000,7500000],
    ["mistral-medium-3.5",1500000,1500000,1500000,7500000],
    ["mistral-medium-latest",1500000,150000,1500000,7500000],
    ["mistral-small-2506",100000,10000,100000,300000],
    ["mistral-small-2603",150000,15000,150000,600000],
    ["mistral-small-latest",150000,15000,150000,600000],
    ["open-mistral-nemo",150000,15000,150000,150000],
    ["pixtral-12b",150000,15000,150000,150000],
    ["voxtral-small-2507",100000,10000,100000,400000],
    ["voxtral-small-latest",100000,10000,100000,400000],
    ["zai-glm-5-2",1400000,140000,1400000,4400000],
    ["zai-glm-5-3",1400000,140000,1400000,4400000],
    ["zai-glm-5-3-flash",150000,30000,150000,500000],
  ])],
  ["groq", table([
    ["llama-3.1-8b-instant",50000,50000,50000,80000],
    ["llama-3.3-70b-versatile",590000,590000,590000,790000],
    ["openai/gpt-oss-120b",150000,75000,150000,600000],
    ["openai/gpt-oss-20b",75000,37500,75000,300000],
    ["openai/gpt-oss-safeguard-20b",75000,37500,75000,300000],
    ["qwen/qwen3.6-27b",600000,300000,600000,3000000],
    ["qwen/qwen3.8-27b",800000,800000,800000,4000000],
  ])],
  ["deepseek", table([
    ["deepseek-flash",300000,6000,300000,1200000],
    ["deepseek-v4-pro",1320000,44000,1320000,3960000],
  ])],
  ["xai", table([
    ["grok-4.3",1250000,200000,1250000,2500000,200000,2500000,400000,2500000,5000000],
    ["grok-4.5",2000000,300000,2000000,6000000,200000,4000000,600000,4000000,12000000],
    ["grok-4.6",2000000,500000,2000000,6000000,200000,4000000,1000000,4000000,12000000],
    ["grok-4.7",2000000,500000,2000000,6000000,200000,4000000,1000000,4000000,12000000],
  ])],
  ["cerebras", table([
    ["gpt-oss-120b",350000,350000,350000,750000],
    ["qwen-3.8-27b",990000,990000,990000,1490000],
  ])],
  ["together", table([
    ["MiniMaxAI/MiniMax-M3",300000,60000,300000,1200000],
    ["Qwen/Qwen3.5-9B",170000,170000,170000,250000],
    ["Qwen/Qwen3.6-Plus",500000,500000,500000,3000000],
    ["Qwen/Qwen3.7-Max",2500000,500000,2500000,7500000],
    ["deepseek-ai/DeepSeek-V4-Pro-0813",1320000,130000,1320000,3960000],
    ["deepseek-ai/DeepSeek-V4.1-Flash",300000,6000,300000,1200000],
    ["meta-models/Muse-Spark-Open-816B-A42B",1250000,150000,1250000,4250000],
    ["moonshotai/Kimi-K3",3000000,300000,3000000,15000000],
    ["moonshotai/Kimi-K3.1-Pro",2000000,200000,2000000,10000000],
    ["nvidia/NVIDIA-Nemotron-3.5-Super-VL",150000,20000,150000,500000],
    ["openai/gpt-oss-120b",150000,150000,150000,600000],
    ["reflection/Beam-1.0-501B-A23B",400000,40000,400000,1200000],
    ["thinkingmachines/Inkling",1000000,170000,1000000,4050000],
    ["zai-org/GLM-5.2",1400000,260000,1400000,4400000],
    ["zai-org/GLM-5.3",1400000,260000,1400000,4400000],
    ["zai-org/GLM-5.3-Flash",150000,30000,150000,500000],
  ])],
  ["moonshot", table([
    ["kimi-k2.6",950000,160000,950000,4000000],
    ["kimi-k2.7-code",950000,190000,950000,4000000],
    ["kimi-k2.7-code-highspeed",1900000,380000,1900000,8000000],
    ["kimi-k3",3000000,300000,3000000,15000000],
    ["kimi-k3.1-pro",2000000,200000,2000000,10000000],
    ["kimi-k3.1-pro-highspeed",4000000,200000,4000000,20000000],
  ])],
]);
