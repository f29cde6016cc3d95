import { writeFileSync } from 'node:fs';
import { openapiText } from './openapi.ts';

/** Writes the repository's `openapi.json`; a test fails when it is not what the routes say. */
writeFileSync(new URL('../../../../openapi.json', import.meta.url), openapiText('http://localhost:8080'));
