import { setFlagsFromString } from 'node:v8';

// The room for new objects stays at its first size, as in the service (main.mjs): what a test process starts costs the more,
// the more memory it has itself. Set here, since an option on the command line has Node compile its own code anew.
setFlagsFromString('--semi-space-growth-factor=1');
// After three requests V8 would optimize the parser of `fetch`: 0.2 s of processor and 23 MB in each test process.
setFlagsFromString('--wasm-tiering-budget=1000000000');
