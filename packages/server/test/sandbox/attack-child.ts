// Runs the attacks as the user that it was started as, and prints what they found as one line of JSON.
import { runAttacks } from './attack-suite.ts';
import { fixture } from './fixture.ts';

const fx = fixture();
try {
  process.stdout.write(`${JSON.stringify(await runAttacks(fx, 'kernel'))}\n`);
} finally {
  await fx.close();
}
