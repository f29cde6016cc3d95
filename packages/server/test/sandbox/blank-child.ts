// Plays the service in the test of a crash: keeps a detached blank sandbox ready in the folder and under the name given,
// prints its id, and stays until it is killed.
import { createBubblewrap } from '../../src/sandbox/bubblewrap.ts';
import { silentLog } from '../support/log.ts';
import { blankSpec, driverFixture } from './fixture.ts';

const [areaDir = '', name = ''] = process.argv.slice(2);
const fx = driverFixture((place) => createBubblewrap({ ...place, log: silentLog }), { areaDir, name });
const blank = await fx.driver.prepare(blankSpec(fx.spec(['/bin/true'], { detached: true })));
process.stdout.write(`${fx.folder} ${blank.id}\n`);
setInterval(() => {}, 60_000);
