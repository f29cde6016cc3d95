import { writeFileSync } from 'node:fs';
import { hostOpenapiText } from './openapi-hosts.ts';
import { openapiText } from './openapi.ts';

/** Writes the repository's documents of its calls; a test fails when they are not what the routes and mounts say. */
writeFileSync(new URL('../../../../openapi.json', import.meta.url), openapiText('http://localhost:8080'));
writeFileSync(
  new URL('../../../../openapi-agent-host.json', import.meta.url),
  hostOpenapiText('localhost:8080', 'http'),
);
