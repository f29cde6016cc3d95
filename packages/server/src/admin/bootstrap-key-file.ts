import { readFileSync } from 'node:fs';
import type { BootstrapKeyFile } from '../services/bootstrap.ts';
import { writeOwnerOnly } from './durable-file.ts';

/** `<data dir>/bootstrap-key` (API contract, section 2, "First key"). */
export function bootstrapKeyFile(path: string): BootstrapKeyFile {
  return {
    read() {
      try {
        return readFileSync(path, 'utf8');
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
        throw error;
      }
    },
    write: (text) => writeOwnerOnly(path, text),
  };
}
