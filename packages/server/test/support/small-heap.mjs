import { setFlagsFromString } from 'node:v8';

// The room for new objects stays at its first size, as in the service (main.mjs): what a test process starts costs the more,
// the more memory it has itself. Set here, since an option on the command line has Node compile its own code anew.
setFlagsFromString('--semi-space-growth-factor=1');
