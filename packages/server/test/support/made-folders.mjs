// Notes which temporary folders a process of tests makes, for whoever runs it (scripts/test.mjs): what is still there when
// the process has ended was left by a test, also where nobody would ever look.
import fs from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { join } from 'node:path';

const shared = process.env.BERTH_TEST_SHARED_DIR;

if (shared) {
  const list = join(shared, `folders-${process.pid}`);
  const noted = (folder) => {
    fs.appendFileSync(list, `${folder}\n`);
    return folder;
  };
  const { mkdtempSync } = fs;
  const { mkdtemp } = fs.promises;
  fs.mkdtempSync = (...given) => noted(mkdtempSync(...given));
  fs.promises.mkdtemp = async (...given) => noted(await mkdtemp(...given));
  syncBuiltinESMExports();
}
