// Loaded into a service by `--import`: code of its own that fails as no code of the service should.
process.on('SIGUSR2', () => void Promise.reject(new Error('A failure of nobody.')));
process.on('SIGHUP', () => {
  throw new Error('An exception of nobody.');
});
