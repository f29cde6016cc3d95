import type { Addresses } from '../http/route.ts';
import { escape, shell } from './html.ts';
import { style } from './style.ts';

/** What a person sees who opens the service's address in a browser. It tells nothing of what runs here. */
export function landingPage({ baseUrl }: Addresses): string {
  const curl = `curl ${baseUrl}/api/v2/agents \\\n  -H "Authorization: Bearer $BERTH_API_KEY"`;
  return shell(
    'Berth',
    style,
    `<main class="narrow">
<h1>Berth</h1>
<p>This is an agent hosting service. It turns a git repository and a model into an agent with an address, an API and an isolated sandbox. It is driven with an API key.</p>
<ul class="cards">
<li><a href="/docs"><b>API reference</b><br>Every call, with examples.</a></li>
<li><a href="/openapi.json"><b>OpenAPI document</b><br>For client generators and tools.</a></li>
<li><a href="/readyz"><b>State</b><br>Whether the service is ready to answer.</a></li>
</ul>
<h4>First call</h4>
<pre><code>${escape(curl)}</code></pre>
<p class="soft">The first key lies in the data directory of the service, in the file <code>bootstrap-key</code>; on the command line, <code>berth login</code> takes it.</p>
</main>`,
  );
}
