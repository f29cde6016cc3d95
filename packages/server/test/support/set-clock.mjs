// Loaded into a service before its own code (`node --import`): its clock is the one of the file that TEST_CLOCK_FILE names,
// an offset in milliseconds that a test may change while it runs.
import { readFileSync } from 'node:fs';

const RealDate = Date;
const file = process.env.TEST_CLOCK_FILE;
let offsetMs = 0;

function look() {
  const text = readFileSync(file, 'utf8');
  // Empty while it is being written.
  if (text !== '') offsetMs = Number(text);
}

globalThis.Date = class extends RealDate {
  constructor(...parts) {
    super(...(parts.length === 0 ? [RealDate.now() + offsetMs] : parts));
  }

  static now() {
    return RealDate.now() + offsetMs;
  }
};

look();
setInterval(look, 20).unref();
